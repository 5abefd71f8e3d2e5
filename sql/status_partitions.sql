-- The tables that hold the rows of table $1 (an oid), with their sizes, indexes and TOAST included; lowest name first.
SELECT c.oid, format('%I.%I', n.nspname, c.relname), c.relname, pg_total_relation_size(c.oid)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind = 'r'
  AND (c.oid = $1::oid OR c.oid IN (SELECT p.relid FROM pg_partition_tree($1::oid) p WHERE p.isleaf))
ORDER BY c.relname
