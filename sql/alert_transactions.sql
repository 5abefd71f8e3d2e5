-- The oldest transaction of this database, prepared ones included, and whether we may see those of other roles (without
-- pg_read_all_stats their start is hidden).  One row, its second part null when there is none.
SELECT pg_has_role(current_user, 'pg_read_all_stats', 'USAGE') AS sees_all,
       (extract(epoch FROM clock_timestamp() - t.start) * 1000000)::int8 AS age_us,
       t.pid,
       t.role,
       t.application_name,
       t.state
FROM (SELECT 1) one
LEFT JOIN LATERAL (
  SELECT a.xact_start AS start, a.pid, a.usename::text AS role, a.application_name, a.state
  FROM pg_stat_activity a
  WHERE a.datname = current_database() AND a.backend_type = 'client backend' AND a.xact_start IS NOT NULL
    AND a.pid <> pg_backend_pid()
  UNION ALL
  SELECT p.prepared, 0, p.owner::text, p.gid, 'prepared'
  FROM pg_prepared_xacts p
  WHERE p.database = current_database()
  ORDER BY 1
  LIMIT 1
) t ON true
