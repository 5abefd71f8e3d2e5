BEGIN
  -- A statement of its own that nothing was written before: the event would be committed without the change it tells of.  A trigger runs in a statement
  -- that writes, even where it comes before the row.  In the extended protocol each message has a time of its own: a lone Bind and Execute is one whose
  -- portal is as old as the transaction.
  IF pg_catalog.pg_current_xact_id_if_assigned() IS NULL AND pg_catalog.pg_trigger_depth() = 0
     AND (pg_catalog.statement_timestamp() = pg_catalog.transaction_timestamp()
          OR EXISTS (SELECT FROM pg_catalog.pg_cursor() c WHERE c.name = '' AND c.creation_time = pg_catalog.transaction_timestamp())) THEN
    RAISE EXCEPTION 'outbox_record: called outside of a transaction'
      USING ERRCODE = 'no_active_sql_transaction',
            DETAIL = 'Nothing was written before it in this transaction, which began with this very statement.',
            HINT = 'BEGIN; change your data; SELECT outbox_record(...); COMMIT. In a single statement: the change first, in a WITH that the call reads from.';
  END IF;
  IF (aggregate_type <> '' AND aggregate_id <> '' AND event_type <> '' AND payload IS NOT NULL) IS NOT TRUE THEN
    RAISE EXCEPTION 'outbox_record: %', CASE
        WHEN aggregate_type IS NULL THEN 'aggregate_type is NULL' WHEN aggregate_type = '' THEN 'aggregate_type is empty'
        WHEN aggregate_id IS NULL THEN 'aggregate_id is NULL' WHEN aggregate_id = '' THEN 'aggregate_id is empty'
        WHEN event_type IS NULL THEN 'event_type is NULL' WHEN event_type = '' THEN 'event_type is empty'
        ELSE 'payload is NULL' END
      USING ERRCODE = 'invalid_parameter_value',
            HINT = 'All four are needed: what the event is about (its type and its id), what happened, and a payload (''{}'' when there is nothing to say).';
  END IF;
  IF headers IS NOT NULL THEN
    IF NOT :has_headers THEN
      RAISE EXCEPTION 'outbox_record: table % has no column headers', :table_literal
        USING ERRCODE = 'undefined_column',
              HINT = 'ALTER TABLE ... ADD COLUMN headers jsonb, then outboxd init once more, and restart the relays; or leave the headers out.';
    ELSIF pg_catalog.jsonb_typeof(headers) <> 'object' THEN
      RAISE EXCEPTION 'outbox_record: headers is a JSON %, not an object', pg_catalog.jsonb_typeof(headers)
        USING ERRCODE = 'invalid_parameter_value', HINT = 'Headers are names and values: ''{"traceparent": "..."}''.';
    END IF;
  END IF;
  IF message_id IS NULL THEN
    message_id := :uuid();
  END IF;
  INSERT INTO :table (message_id, aggregate_type, aggregate_id, event_type, payload:more_columns)
  VALUES (:message_id_value, aggregate_type, :aggregate_id_value, event_type, :payload_value:more_values);
  RETURN message_id;
END
