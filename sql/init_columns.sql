-- What outbox_record has to know of the columns of table $1 (an oid): name, type without its length, category ('S': takes a text as it is; 'N': a number),
-- and whether there is a default.  And, as a row without a name, whether we may make functions in the table's schema.
SELECT a.attname, format_type(a.atttypid, NULL), t.typcategory::text, a.atthasdef
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
WHERE a.attrelid = $1::oid AND a.attnum > 0 AND NOT a.attisdropped
  AND a.attname IN ('message_id', 'aggregate_id', 'payload', 'headers', 'created_at')
UNION ALL
SELECT NULL, NULL, NULL, has_schema_privilege(c.relnamespace, 'CREATE') FROM pg_class c WHERE c.oid = $1::oid
