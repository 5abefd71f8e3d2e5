-- The table behind a name ($1), what it is and what we may do with it.
SELECT c.oid, c.relkind, format('%I.%I', n.nspname, c.relname), current_database(), current_user,
       has_table_privilege(c.oid, 'SELECT'), has_any_column_privilege(c.oid, 'UPDATE'), pg_is_in_recovery()
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1::text)
