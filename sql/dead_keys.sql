-- The aggregates that have a dead message, with the oldest one's id; for --on-dead block.  $1 --max-attempts
SELECT :aggregate_key, min(m.id)::int8
FROM :table m
WHERE m.published_at IS NULL AND :attempts >= $1::int4
GROUP BY 1
