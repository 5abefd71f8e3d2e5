-- Who is in the fleet and who holds which lane's gate.  $1 the table's oid, $2..$3 the range of gate keys, $4 the membership key.
-- (pg_locks shows a two-key advisory lock as classid, objid, objsubid 2.)
SELECT l.objid::int8, l.pid
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND l.classid = $1::oid
  AND (l.objid = $4::oid OR l.objid BETWEEN $2::oid AND $3::oid)
ORDER BY l.pid, l.objid
