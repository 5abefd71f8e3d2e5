-- The statements that mark partition $2 of table $1 (oids) as being removed by outboxd, and take the mark off again.  It lets a later
-- run find what a crash between detaching and dropping leaves behind.  A comment that is there already is kept behind the mark.
SELECT format('COMMENT ON TABLE %I.%I IS %L', n.nspname, c.relname,
              format('outboxd is removing partition %s of table %s, %s', c.oid, $1::oid, pg_get_expr(c.relpartbound, c.oid))
              || coalesce(E'\n' || d.comment, '')),
       format('COMMENT ON TABLE %I.%I IS %s', n.nspname, c.relname, coalesce(quote_literal(d.comment), 'NULL'))
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
CROSS JOIN LATERAL (SELECT obj_description(c.oid, 'pg_class') AS comment) d
WHERE c.oid = $2::oid AND c.relpartbound IS NOT NULL
