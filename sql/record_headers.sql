-- The same for an event with headers.
INSERT INTO :table (message_id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES ($1, $2, $3, $4, $5, $6)
