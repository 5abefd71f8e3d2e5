-- Dead messages above id $5 in id order, $6 at most.  $1..$4 as in dead.sql.
SELECT m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text, coalesce(m.attempts, 0)::int8,
       m.last_error::text,
       CASE WHEN isfinite(m.created_at) THEN (extract(epoch FROM clock_timestamp() - m.created_at) * 1000000)::int8 END AS age_us,
       to_char(m.created_at::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'),
       to_char(m.published_at::timestamptz AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
FROM :table m
WHERE :is_dead AND m.id > $5::int8
ORDER BY m.id
LIMIT $6::int4
