-- How far a table is on its way.  Called by upgrade-to-partitioned.sh with the variable table; one row, or none when there is no such table.
--
-- state: plain      nothing has been done yet
--        bounded    its rows to come have to lie below the bound
--        proven     all its rows do
--        stale      as bounded or proven, and the bound is too near by now
--        exchanged  the table is partitioned, and the plain one is its first partition
--        done       the same, and the bound's constraint has been taken away
--        foreign    partitioned, but not by this script
WITH named AS (
  SELECT c.oid, c.relkind, c.relname, n.nspname
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass(:'table')
), holder AS (
  -- The table that holds the rows of before.
  SELECT t.oid, t.relkind, t.relname, t.nspname, CASE WHEN t.relkind = 'r' THEN t.oid ELSE p.oid END AS rows_oid
  FROM named t
  LEFT JOIN (pg_inherits i JOIN pg_class p ON p.oid = i.inhrelid)
    ON i.inhparent = t.oid AND p.relname = t.relname || '_plain'
)
SELECT CASE WHEN h.relkind NOT IN ('r', 'p') THEN 'no table'
            WHEN h.relkind = 'p' AND h.rows_oid IS NULL THEN 'foreign'
            WHEN h.relkind = 'p' AND k.oid IS NULL THEN 'done'
            WHEN h.relkind = 'p' THEN 'exchanged'
            WHEN k.oid IS NULL THEN 'plain'
            WHEN b.bound < clock_timestamp() + interval '1 hour' THEN 'stale'
            WHEN k.convalidated THEN 'proven'
            ELSE 'bounded' END AS state,
       h.oid,
       h.oid::int8::bit(32)::int4 AS lock_key,
       quote_ident(h.nspname) AS schema,
       quote_ident(h.relname) AS name,
       quote_ident(h.relname || '_plain') AS plain_name,
       to_char(b.bound, 'YYYY-MM-DD HH24:MI:SS+00') AS bound
FROM holder h
LEFT JOIN pg_constraint k ON k.conrelid = h.rows_oid AND k.conname = 'outboxd_bound'
CROSS JOIN LATERAL (SELECT substring(pg_get_constraintdef(k.oid) FROM $re$'([^']+)'$re$)::timestamptz AS bound) b;
