-- The partitions of table $1 (an oid), lowest bound first, with what a new one takes over from the newest.
-- Bounds are microseconds since 1970; NULL is MINVALUE, MAXVALUE or an infinity.  The session's time zone is UTC.
SELECT c.oid,
       n.nspname,
       c.relname,
       b.text = 'DEFAULT' AS is_default,
       (extract(epoch FROM b.lower) * 1000000)::bigint AS from_us,
       (extract(epoch FROM b.upper) * 1000000)::bigint AS to_us,
       array_to_string(c.reloptions, ', ') AS settings,
       c.relreplident,
       quote_ident(s.spcname) AS tablespace,
       c.relkind,
       i.inhdetachpending,
       b.text AS bounds
FROM pg_inherits i
JOIN pg_class c ON c.oid = i.inhrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace
CROSS JOIN LATERAL (
  SELECT e.text,
         nullif(nullif(substring(e.text FROM $re$FROM \('([^']+)'\)$re$)::timestamptz, '-infinity'), 'infinity') AS lower,
         nullif(nullif(substring(e.text FROM $re$TO \('([^']+)'\)$re$)::timestamptz, '-infinity'), 'infinity') AS upper
  FROM (SELECT pg_get_expr(c.relpartbound, c.oid) AS text) e
) b
WHERE i.inhparent = $1::oid
ORDER BY is_default, b.lower NULLS FIRST
