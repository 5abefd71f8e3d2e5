-- Tables called $1 in any schema, or in schema $2 unless that is empty, and whether we may look into the schema: for a name that led nowhere.
SELECT quote_ident(n.nspname), format('%I.%I', n.nspname, c.relname), has_schema_privilege(n.oid, 'USAGE')
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relname = $1 AND c.relkind IN ('r', 'p') AND ($2 = '' OR n.nspname = $2)
ORDER BY has_schema_privilege(n.oid, 'USAGE'), 1
LIMIT 1
