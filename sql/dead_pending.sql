-- The pending ones among ids $1, with their attempts.
SELECT m.id::int8, coalesce(m.attempts, 0)::int8
FROM :table m
WHERE m.published_at IS NULL AND m.id = ANY ($1::int8[])
