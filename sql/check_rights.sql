-- What our role lacks in order to claim from table $1 (an oid) and to settle in its partitions: one row a privilege, with on how many of these
-- tables it lacks it, the first one, and whether that is the table itself.
WITH tree AS (
  SELECT c.oid, n.oid AS namespace, n.nspname, format('%I.%I', n.nspname, c.relname) AS name, c.oid = $1::oid AS is_root
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = $1::oid
     OR c.oid IN (SELECT t.relid FROM pg_partition_tree($1::oid::regclass) t WHERE t.isleaf)
), missing AS (
  SELECT 1 AS nth, 'USAGE' AS privilege, 'SCHEMA ' || quote_ident(t.nspname) AS name, true AS is_root
  FROM (SELECT DISTINCT namespace, nspname FROM tree) t
  WHERE NOT has_schema_privilege(t.namespace, 'USAGE')
  UNION ALL
  SELECT 2, 'SELECT', t.name, t.is_root
  FROM tree t
  WHERE NOT has_table_privilege(t.oid, 'SELECT')
  UNION ALL
  SELECT 3, format('UPDATE (%I)', a.attname), t.name, t.is_root
  FROM tree t JOIN pg_attribute a ON a.attrelid = t.oid
  WHERE a.attname IN ('attempts', 'last_error', 'published_at') AND NOT a.attisdropped
    AND NOT has_column_privilege(t.oid, a.attnum, 'UPDATE')
)
SELECT m.privilege, count(*), (array_agg(m.name ORDER BY m.is_root DESC, m.name))[1], bool_or(m.is_root)
FROM missing m
GROUP BY m.nth, m.privilege
ORDER BY m.nth, m.privilege
