-- The pending index on table $1 (an oid) and on each of its partitions: one row a table, the table itself first.
SELECT c.relkind,
       format('%I.%I', n.nspname, c.relname) AS table_name,
       i.name AS index_name,
       coalesce(i.indisvalid, false) AS is_valid,
       coalesce(i.is_attached, false) AS is_attached,
       t.level
FROM (SELECT $1::oid AS relid, 0 AS level
      UNION SELECT p.relid, p.level FROM pg_partition_tree($1::oid::regclass) p) t
JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
  SELECT format('%I.%I', m.nspname, x.relname) AS name, k.indisvalid, x.relispartition AS is_attached
  FROM pg_index k
  JOIN pg_class x ON x.oid = k.indexrelid
  JOIN pg_namespace m ON m.oid = x.relnamespace
  JOIN pg_attribute a ON a.attrelid = k.indrelid AND a.attnum = k.indkey[0]
  WHERE k.indrelid = c.oid
    AND a.attname = 'id'
    AND pg_get_expr(k.indpred, k.indrelid) = '(published_at IS NULL)'
  ORDER BY NOT x.relispartition, NOT k.indisvalid
  LIMIT 1
) i ON true
ORDER BY t.level, c.relname
