-- outboxd's functions beside table $1 (an oid), and whatever else has their names there: name, types of the arguments, body, quoted owner, whether the owner's
-- rights are ours, comment, and the quoted name of the schema.  The last column: whether the comment names a table that is there.
SELECT p.proname, oidvectortypes(p.proargtypes), p.prosrc, quote_ident(pg_get_userbyid(p.proowner)), pg_has_role(p.proowner, 'USAGE'),
       coalesce(d.text, ''), quote_ident(n.nspname),
       to_regclass(substring(d.text FROM '^outboxd: writes events to (.*)$')) IS NOT NULL
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_proc p ON p.pronamespace = n.oid AND p.proname IN ('outbox_uuid_v7', 'outbox_process_once', 'outbox_record')
CROSS JOIN LATERAL (SELECT obj_description(p.oid, 'pg_proc') AS text) d
WHERE c.oid = $1::oid
ORDER BY p.proname, 2
