-- Was the message handled before?  One row affected: no.
INSERT INTO :processed (message_id, consumer) VALUES ($1, $2) ON CONFLICT DO NOTHING
