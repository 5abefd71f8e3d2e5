-- For consumers: tells in the transaction that acts on a message whether it is the first one to do so.
CREATE OR REPLACE FUNCTION :function(message_id :message_id_type, consumer text) RETURNS boolean
  LANGUAGE plpgsql VOLATILE AS :body
