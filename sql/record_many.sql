-- Many events, an array for each column, written in the arrays' order.  The casts name the columns' types, which from text have no cast of their own.
INSERT INTO :table (message_id, aggregate_type, aggregate_id, event_type, payload:headers_column)
SELECT e.message_id:message_id_type, e.aggregate_type:aggregate_type_type, e.aggregate_id:aggregate_id_type,
       e.event_type:event_type_type, e.payload:payload_type:headers_value
FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[])
  AS e (message_id, aggregate_type, aggregate_id, event_type, payload, headers)
