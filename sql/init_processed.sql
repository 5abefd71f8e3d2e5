-- For consumers: INSERT ... ON CONFLICT DO NOTHING in the transaction that acts on a message tells whether it was seen before.
CREATE TABLE IF NOT EXISTS :processed (
  message_id   :message_id_type NOT NULL,
  consumer     text        NOT NULL,
  processed_at timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (message_id, consumer)
)
