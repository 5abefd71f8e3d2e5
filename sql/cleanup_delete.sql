-- Deletes published rows created before $2 (microseconds since 1970) among the next 5,000 with ids above $1, in id order: what a
-- plain table has instead of partitions to drop.  Returns the last id looked at, how many were, how many of them were old, how many went.
WITH seen AS MATERIALIZED (
  SELECT m.ctid AS place, m.id, m.published_at IS NOT NULL AS is_published,
         m.created_at < timestamptz 'epoch' + $2::int8 * interval '1 microsecond' AS is_old
  FROM :table m
  WHERE m.id > $1::int8
  ORDER BY m.id
  LIMIT 5000
), gone AS (
  DELETE FROM :table m
  WHERE m.ctid = ANY (ARRAY(SELECT s.place FROM seen s WHERE s.is_old AND s.is_published)) AND m.published_at IS NOT NULL
  RETURNING 1
)
SELECT max(s.id), count(*), count(*) FILTER (WHERE s.is_old), (SELECT count(*) FROM gone)
FROM seen s
