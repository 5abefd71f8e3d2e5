-- Tables with the mark of cleanup_mark.sql that names them and table $1 (an oid): bounds, whether still a partition, and the statement
-- that takes the mark off.  A copy of such a table (dump and restore, CREATE TABLE LIKE) has another oid and is not taken for one.
SELECT c.oid, n.nspname, c.relname, m.found[1] AS bounds, c.relispartition,
       coalesce((SELECT i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = c.oid), false) AS is_detach_pending,
       format('COMMENT ON TABLE %I.%I IS %s', n.nspname, c.relname, coalesce(quote_literal(m.found[3]), 'NULL')) AS unmark
FROM pg_description d
JOIN pg_class c ON c.oid = d.objoid
JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (
  SELECT regexp_match(d.description, format(
    $re$^outboxd is removing partition %s of table %s, (FOR VALUES FROM \((?:MINVALUE|'[^']+')\) TO \('[^']+'\))(\n(.*))?$$re$,
    c.oid, $1::oid)) AS found
) m
WHERE d.classoid = 'pg_class'::regclass AND d.objsubid = 0 AND d.description LIKE 'outboxd is removing partition %'
  AND c.relkind = 'r' AND m.found IS NOT NULL
  AND NOT EXISTS (SELECT FROM pg_inherits i WHERE i.inhrelid = c.oid AND i.inhparent <> $1::oid)
ORDER BY c.relname
