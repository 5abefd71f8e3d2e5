-- Gives the dead messages among ids $5 up: done for the relay, its index and the retention, and told from published ones by last_error.
-- $6 why.  $1..$4 as in dead.sql.
UPDATE :table m
SET published_at = clock_timestamp(),
    last_error = left('discarded: ' || $6::text || coalesce(' (refused with: ' || m.last_error || ')', ''), :error_chars)
WHERE m.id = ANY ($5::int8[]) AND :is_dead
