-- The dead messages m among those a command is about, as :is_dead.  $1..$3 as in selector.sql, $4 --max-attempts
m.published_at IS NULL AND coalesce(m.attempts, 0) >= $4::int4
AND :selected
