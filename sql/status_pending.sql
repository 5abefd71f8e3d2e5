-- What is pending in each lane, of the first 100,001 messages by id: a backlog of millions costs no more.  Age and id are those of the one that
-- waits longest, dead ones aside.  $1 --max-attempts, $2 --lanes
WITH first AS MATERIALIZED (
  SELECT m.id::int8 AS id, coalesce(m.attempts, 0) >= $1::int4 AS is_dead, coalesce(m.aggregate_id::text, '') AS aggregate_id,
         coalesce(CASE WHEN isfinite(m.created_at) THEN (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::int8 END, 0) AS age_us
  FROM :table m
  WHERE m.published_at IS NULL
  ORDER BY m.id
  LIMIT 100001
), in_lane AS (
  SELECT f.*, (hashtextextended(f.aggregate_id COLLATE "C", 0) % $2::int4 + $2::int4) % $2::int4 AS lane
  FROM first f
)
SELECT l.lane, count(*), count(*) FILTER (WHERE l.is_dead),
       max(l.age_us) FILTER (WHERE NOT l.is_dead),
       (array_agg(l.id ORDER BY l.age_us DESC, l.id) FILTER (WHERE NOT l.is_dead))[1],
       max(l.age_us) FILTER (WHERE l.is_dead)
FROM in_lane l
GROUP BY l.lane
ORDER BY l.lane
