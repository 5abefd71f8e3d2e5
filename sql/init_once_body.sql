#variable_conflict use_column
BEGIN
  IF outbox_process_once.message_id IS NULL THEN
    RAISE EXCEPTION 'outbox_process_once: message_id is NULL'
      USING ERRCODE = 'null_value_not_allowed', HINT = 'Pass the field message_id of the stream''s entry.';
  END IF;
  IF (outbox_process_once.consumer <> '') IS NOT TRUE THEN
    RAISE EXCEPTION 'outbox_process_once: consumer is %', CASE WHEN outbox_process_once.consumer IS NULL THEN 'NULL' ELSE 'empty' END
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'Pass a name that stands for what acts on the message, the same at every call: the consumer group''s, for one.';
  END IF;
  INSERT INTO :processed (message_id, consumer) VALUES (outbox_process_once.message_id, outbox_process_once.consumer)
  ON CONFLICT (message_id, consumer) DO NOTHING;
  RETURN FOUND;
END
