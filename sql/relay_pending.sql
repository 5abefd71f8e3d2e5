-- How many messages are pending, dead ones aside.  $1 --max-attempts
SELECT count(*) FROM :table m WHERE m.published_at IS NULL AND coalesce(m.attempts, 0) < $1::int4
