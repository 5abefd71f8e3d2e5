-- Who holds which lane's gate.  $1 the table's oid, $2..$3 the range of gate keys.  Where pg_stat_activity hides the address of another role's session
-- the port is null too; that of a unix socket is -1.
SELECT l.objid::int8, l.pid, host(a.client_addr), a.client_port, a.application_name, a.usename::text,
       (extract(epoch FROM clock_timestamp() - a.backend_start) * 1000000)::int8
FROM pg_locks l
LEFT JOIN pg_stat_activity a ON a.pid = l.pid
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.classid = $1::oid AND l.objid BETWEEN $2::oid AND $3::oid
ORDER BY l.objid
