-- Writes an event in the caller's transaction.
CREATE OR REPLACE FUNCTION :function(aggregate_type text, aggregate_id text, event_type text, payload jsonb,
                                     message_id uuid DEFAULT NULL, headers jsonb DEFAULT NULL) RETURNS uuid
  LANGUAGE plpgsql VOLATILE AS :body
