-- How many messages are pending and how many of them are dead; of 100,001 at most, so that a backlog of millions costs no more.
-- $1 --max-attempts, $2 the smallest pending id, as alert_oldest.sql has just seen it: what cannot be removed yet lies before it in the index, and
-- is walked past once a look instead of twice
SELECT count(*),
       count(*) FILTER (WHERE p.attempts >= $1::int4),
       min(p.id) FILTER (WHERE p.attempts >= $1::int4) AS first_dead_id,
       (extract(epoch FROM clock_timestamp() - min(p.created_at) FILTER (WHERE p.attempts < $1::int4)) * 1000000)::int8
         AS oldest_waiting_us
FROM (
  SELECT m.id::int8 AS id, coalesce(m.attempts, 0)::int4 AS attempts,
         CASE WHEN isfinite(m.created_at) THEN m.created_at::timestamptz END AS created_at
  FROM :table m
  WHERE m.published_at IS NULL AND m.id >= $2::int8
  LIMIT 100001
) p
