-- The workers of a group, and which lanes are held: number of the lane (65535: membership) and server process.  $1 the group's key.
-- (pg_locks shows a one-key advisory lock as classid, its upper half, and objid, its lower one, with objsubid 1.)
SELECT l.objid::int8 & 65535, l.pid
FROM pg_locks l
WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
  AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
  AND ((l.classid::int8 << 32) | l.objid::int8) & ~65535::int8 = $1::int8
ORDER BY l.pid
