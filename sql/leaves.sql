-- Names of partitions ($1: oids), quoted and with their schema.
SELECT c.oid, format('%I.%I', n.nspname, c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = ANY ($1::oid[])
