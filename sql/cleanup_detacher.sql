-- Is somebody at work on a detach of a partition in this database right now?  $1: our own server process.
SELECT a.pid, coalesce(a.application_name, '')
FROM pg_stat_activity a
WHERE a.datname = current_database() AND a.pid <> $1::int4 AND a.state = 'active'
  AND a.query ~* 'detach\s+partition'
LIMIT 1
