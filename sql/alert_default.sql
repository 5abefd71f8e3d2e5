-- Rows in the DEFAULT partition, 1,001 at most.
SELECT count(*) FROM (SELECT 1 FROM :partition LIMIT 1001) r
