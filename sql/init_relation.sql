-- What stands under the name $1, if anything: one row or none.
SELECT c.oid,
       c.relkind,
       n.nspname,
       c.relname,
       coalesce(pg_get_partkeydef(c.oid), '') AS partition_key,
       CASE WHEN c.relowner = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) THEN ''
            ELSE quote_ident(pg_get_userbyid(c.relowner)) END AS foreign_owner,
       coalesce((SELECT format_type(a.atttypid, a.atttypmod) FROM pg_attribute a
                 WHERE a.attrelid = c.oid AND a.attname = 'message_id' AND NOT a.attisdropped), 'uuid') AS message_id_type,
       CASE WHEN c.relkind IN ('r', 'p')
             AND EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attname = 'id' AND NOT a.attisdropped)
            THEN (SELECT q.seqcache FROM pg_sequence q
                  WHERE q.seqrelid = pg_get_serial_sequence(format('%I.%I', n.nspname, c.relname), 'id')::regclass)
       END AS sequence_cache
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.oid = to_regclass($1)
