-- Sessions there may be and there are: of the server, of the database, of our role.  -1: no limit.
SELECT current_setting('max_connections')::int8 - current_setting('superuser_reserved_connections')::int8
         - coalesce(current_setting('reserved_connections', true), '0')::int8 AS server_max_n,
       (SELECT coalesce(sum(s.numbackends), 0) FROM pg_stat_database s WHERE s.datid <> 0)::int8 AS server_n,
       d.datconnlimit,
       (SELECT s.numbackends FROM pg_stat_database s WHERE s.datid = d.oid),
       r.rolconnlimit,
       (SELECT count(*) FROM pg_stat_activity a WHERE a.usesysid = r.oid)
FROM pg_database d, pg_roles r
WHERE d.datname = current_database() AND r.rolname = current_user
