-- Which of the tables that hold the rows of table $1 (an oid) a publication includes for updates though they have no replica identity: PostgreSQL refuses
-- to mark messages there.  How many, and the first.
SELECT count(*), min(l.name)
FROM (
  SELECT n.nspname, c.relname, format('%I.%I', n.nspname, c.relname) AS name
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.relkind = 'r'
    AND (c.oid = $1::oid OR c.oid IN (SELECT t.relid FROM pg_partition_tree($1::oid::regclass) t WHERE t.isleaf))
    AND (c.relreplident = 'n'
         OR c.relreplident = 'd' AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indrelid = c.oid AND i.indisprimary))
) l
WHERE EXISTS (
  SELECT FROM pg_publication_tables t
  JOIN pg_publication p ON p.pubname = t.pubname
  WHERE p.pubupdate
    AND ((t.schemaname, t.tablename) = (l.nspname, l.relname)
         OR (t.schemaname, t.tablename) = (SELECT n.nspname, c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
                                           WHERE c.oid = $1::oid)))
