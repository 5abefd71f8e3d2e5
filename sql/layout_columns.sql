-- The columns of the table behind a name ($1): name, type, whether they may be NULL, and the
-- type's modifier (of varchar(n): n + 4).
SELECT a.attname, CASE WHEN t.typtype = 'd' THEN format_type(t.typbasetype, NULL) ELSE format_type(a.atttypid, NULL) END,
       NOT a.attnotnull, a.atttypmod
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
