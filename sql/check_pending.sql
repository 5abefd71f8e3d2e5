-- What names the streams of the first thousand pending messages.  $1 --lanes
SELECT DISTINCT
       ((hashtextextended(f.aggregate_id COLLATE "C", 0) % $1::int4 + $1::int4) % $1::int4)::int4 AS lane,
       f.aggregate_type, f.aggregate_id, f.event_type
FROM (
  SELECT coalesce(m.aggregate_type::text, '') AS aggregate_type, coalesce(m.aggregate_id::text, '') AS aggregate_id,
         coalesce(m.event_type::text, '') AS event_type
  FROM :table m
  WHERE m.published_at IS NULL
  ORDER BY m.id
  LIMIT 1000
) f
