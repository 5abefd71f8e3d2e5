-- The default of outbox_record's message_id.
CREATE OR REPLACE FUNCTION :function() RETURNS uuid
  LANGUAGE plpgsql VOLATILE PARALLEL SAFE AS :body
