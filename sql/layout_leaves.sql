-- The tables that hold the rows of the table behind a name ($1): name, whether we may settle there, whether a pending index is there.
SELECT c.oid, format('%I.%I', n.nspname, c.relname),
       has_table_privilege(c.oid, 'SELECT') AND has_column_privilege(c.oid, 'published_at', 'UPDATE')
         AND has_column_privilege(c.oid, 'attempts', 'UPDATE') AND has_column_privilege(c.oid, 'last_error', 'UPDATE'),
       EXISTS (
         SELECT 1 FROM pg_index i JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
         WHERE i.indrelid = c.oid AND i.indisvalid AND a.attname = 'id'
           AND pg_get_expr(i.indpred, i.indrelid) = '(published_at IS NULL)'
       )
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1::text) AND c.relkind = 'r'
   OR c.relkind = 'r' AND c.oid IN (SELECT p.relid FROM pg_partition_tree(to_regclass($1::text)) p WHERE p.isleaf)
ORDER BY 2
