-- What this session may do about table $1 (an oid), and how its rows can be walked: one row, or none when the table is gone.
SELECT quote_ident(current_user),
       quote_ident(pg_get_userbyid(c.relowner)) AS owner,
       quote_ident(n.nspname) AS schema,
       pg_has_role(c.relowner, 'USAGE') AS is_owner,
       has_schema_privilege(n.oid, 'CREATE') AS can_create,
       has_table_privilege(c.oid, 'SELECT') AND has_table_privilege(c.oid, 'DELETE') AS can_delete,
       c.relkind,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'processed_at' AND NOT a.attisdropped)
         AS has_processed_at,
       EXISTS (SELECT FROM pg_index i JOIN pg_class x ON x.oid = i.indexrelid JOIN pg_am m ON m.oid = x.relam
               JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = i.indkey[0]
               WHERE i.indrelid = c.oid AND i.indisvalid AND i.indpred IS NULL AND m.amname = 'btree' AND a.attname = 'id')
         AS has_id_index
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = $1::oid
