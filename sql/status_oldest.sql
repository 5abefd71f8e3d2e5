-- The pending message that waits longest, dead ones ($1 --max-attempts) aside, and its age; no row when there is none.  Among the first thousand by
-- id, for the reason told in alert_oldest.sql.
SELECT f.id, f.age_us
FROM (
  SELECT m.id::int8 AS id,
         coalesce(CASE WHEN isfinite(m.created_at) THEN (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::int8 END, 0) AS age_us
  FROM :table m
  WHERE m.published_at IS NULL AND coalesce(m.attempts, 0) < $1::int4
  ORDER BY m.id
  LIMIT 1000
) f
ORDER BY f.age_us DESC, f.id
LIMIT 1
