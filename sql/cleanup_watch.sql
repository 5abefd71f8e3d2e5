-- Ends what server process $1 does as soon as anybody has waited behind it for a lock on one of the tables $2, $3 (oids) for 0.3 s.
SELECT pg_cancel_backend($1::int4)
FROM pg_locks l
WHERE l.locktype = 'relation' AND NOT l.granted AND l.relation IN ($2::oid, $3::oid) AND l.pid <> $1::int4
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.waitstart < clock_timestamp() - interval '0.3 seconds'
  AND $1::int4 = ANY (pg_blocking_pids(l.pid))
LIMIT 1
