-- How many messages are pending and how many of them are dead; of 100,001 at most, so that a backlog of millions costs no more.
-- $1 --max-attempts
SELECT count(*),
       count(*) FILTER (WHERE p.attempts >= $1::int4),
       min(p.id) FILTER (WHERE p.attempts >= $1::int4) AS first_dead_id,
       (extract(epoch FROM clock_timestamp() - min(p.created_at) FILTER (WHERE p.attempts < $1::int4)) * 1000000)::int8
         AS oldest_waiting_us
FROM (
  SELECT m.id::int8 AS id, coalesce(m.attempts, 0)::int4 AS attempts,
         CASE WHEN isfinite(m.created_at) THEN m.created_at::timestamptz END AS created_at
  FROM :table m
  WHERE m.published_at IS NULL
  LIMIT 100001
) p
