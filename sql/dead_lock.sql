-- Locks the dead messages above id $5 up to $6, and all other dead ones of their aggregates: an aggregate's messages come to life together, or the
-- later ones could be published before the earlier ones.  In id order, so that two of us never wait for each other.  $1..$4 as in dead.sql.
WITH page AS MATERIALIZED (
  SELECT :aggregate_key AS key
  FROM :table m
  WHERE :is_dead AND m.id > $5::int8 AND m.id <= $6::int8
)
SELECT m.id::int8
FROM :table m
WHERE :is_dead AND :aggregate_key IN (SELECT p.key FROM page p)
ORDER BY m.id
FOR UPDATE OF m
