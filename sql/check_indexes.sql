-- The tables that hold the rows of table $1 (an oid) and their pending indexes: a row for each index, or with NULL where there is none.
-- The names as EXPLAIN has them, and the table's quoted.
SELECT n.nspname, c.relname, i.relname, format('%I.%I', n.nspname, c.relname)
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN LATERAL (
  SELECT x.relname
  FROM pg_index k
  JOIN pg_class x ON x.oid = k.indexrelid
  JOIN pg_attribute a ON a.attrelid = k.indrelid AND a.attnum = k.indkey[0]
  WHERE k.indrelid = c.oid AND k.indisvalid AND a.attname = 'id'
    AND pg_get_expr(k.indpred, k.indrelid) = '(published_at IS NULL)'
) i ON true
WHERE c.relkind = 'r'
  AND (c.oid = $1::oid OR c.oid IN (SELECT t.relid FROM pg_partition_tree($1::oid::regclass) t WHERE t.isleaf))
ORDER BY 1, 2, 3
