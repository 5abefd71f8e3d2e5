-- What is pending, in id order: what the relay claims from.
-- :how is nothing, " CONCURRENTLY" or " IF NOT EXISTS"; :only is nothing or " ONLY"; :name is empty where PostgreSQL is to choose it.
CREATE INDEX:how :name ON:only :table (id) WHERE published_at IS NULL
