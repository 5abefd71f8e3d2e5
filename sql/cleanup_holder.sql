-- The transaction that has held a lock on table $1 or its partition $2 (oids) for longest, if for more than a minute: a detach would wait for it.
SELECT l.pid, coalesce(a.application_name, ''), extract(epoch FROM clock_timestamp() - a.xact_start)::float8 AS seconds
FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'relation' AND l.granted AND l.relation IN ($1::oid, $2::oid) AND l.pid <> pg_backend_pid()
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND a.xact_start < clock_timestamp() - interval '60 seconds'
ORDER BY a.xact_start
LIMIT 1
