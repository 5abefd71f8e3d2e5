-- The oldest pending message and its age by the database's clock, and the smallest pending id.  $1 --max-attempts, $2 --lanes
--
-- "Oldest" is the smallest created_at among the first thousand by id: the pending index gives these however many are pending.  An id is
-- drawn after its transaction's now() was taken, so the smallest id alone may be younger than its neighbours by a transaction's length, or
-- carry a time that an application made up.
WITH first AS MATERIALIZED (
  SELECT m.id::int8 AS id, CASE WHEN isfinite(m.created_at) THEN m.created_at::timestamptz END AS created_at,
         m.aggregate_type::text AS aggregate_type, m.aggregate_id::text AS aggregate_id,
         m.event_type::text AS event_type, coalesce(m.attempts, 0)::int4 AS attempts
  FROM :table m
  WHERE m.published_at IS NULL
  ORDER BY m.id
  LIMIT 1000
)
SELECT (extract(epoch FROM clock_timestamp() - f.created_at) * 1000000)::int8 AS age_us,
       f.id,
       left(f.aggregate_type, 200),
       left(f.aggregate_id, 200),
       left(f.event_type, 200),
       f.attempts,
       f.attempts >= $1::int4 AS is_dead,
       (hashtextextended(coalesce(f.aggregate_id, '') COLLATE "C", 0) % $2::int4 + $2::int4) % $2::int4 AS lane,
       (SELECT min(id) FROM first)
FROM first f
ORDER BY f.created_at, f.id
LIMIT 1
