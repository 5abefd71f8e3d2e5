-- The published and discarded ones among ids $1; only where an index makes that cheap (dead_session.sql).
SELECT m.id::int8, coalesce(m.last_error LIKE 'discarded: %', false)
FROM :table m
WHERE m.published_at IS NOT NULL AND m.id = ANY ($1::int8[])
