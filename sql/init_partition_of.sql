-- The same partition in one statement, for a table that nobody uses yet (init --print).
CREATE TABLE IF NOT EXISTS :partition PARTITION OF :table
  FOR VALUES FROM (:from) TO (:to)
  WITH (:settings)
