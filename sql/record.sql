-- One event, of parameters that take the columns' own types: docs/library.md.
INSERT INTO :table (message_id, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, $2, $3, $4, $5)
