-- How many of the published messages $3 are somewhere else than at the places $2 of partitions $1.  Reads the partitions that :range and :span lead
-- to, once; replay asks only when a page has come back with fewer messages than it had keys.
SELECT count(*)
FROM :table m
WHERE m.id = ANY ($3::int8[])
  AND m.published_at IS NOT NULL
  AND NOT EXISTS (SELECT FROM unnest($1::oid[], $2::tid[]) AS k (leaf, place) WHERE k.leaf = m.tableoid AND k.place = m.ctid)
  :range
  :span
