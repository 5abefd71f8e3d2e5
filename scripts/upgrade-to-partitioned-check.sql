-- What is in the way of making a plain table partitioned: one row an obstacle, with what to do about it.  Called by upgrade-to-partitioned.sh with the
-- variable table.  Reads the catalog only.
WITH t AS (
  SELECT c.*, n.nspname, format('%I.%I', n.nspname, c.relname) AS shown
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass(:'table')
), mine AS (
  SELECT 'pg_class'::regclass AS classid, t.oid AS objid FROM t
  UNION ALL SELECT 'pg_type'::regclass, y.oid FROM pg_type y JOIN t ON y.oid = t.reltype OR y.typelem = t.reltype
  UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index i JOIN t ON i.indrelid = t.oid
  UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k JOIN t ON k.conrelid = t.oid
)
SELECT 'the server is version ' || current_setting('server_version') || '; outboxd needs 14 or newer'
WHERE current_setting('server_version_num')::int < 140000
UNION ALL
SELECT format('%s belongs to %s, and %I is no member of that role: run this as the owner', t.shown, quote_ident(pg_get_userbyid(t.relowner)), current_user)
FROM t WHERE NOT pg_has_role(t.relowner, 'USAGE')
UNION ALL
SELECT format('%I may not make tables in schema %I: GRANT CREATE ON SCHEMA %I TO %I', r.rolname, t.nspname, t.nspname, r.rolname)
FROM t JOIN pg_roles r ON r.oid = t.relowner OR r.rolname = current_user
WHERE NOT has_schema_privilege(r.oid, t.relnamespace, 'CREATE')
UNION ALL
SELECT format('its name has %s bytes; partitions'' names fit when it has at most 51: ALTER TABLE ... RENAME', octet_length(t.relname))
FROM t WHERE octet_length(t.relname) > 51
UNION ALL
SELECT format('the name %I is taken; the plain table is to be called so: rename what has it', t.relname || '_plain')
FROM t WHERE to_regclass(format('%I.%I', t.nspname, t.relname || '_plain')) IS NOT NULL
UNION ALL
SELECT 'it is temporary or unlogged: a partition of a table that is kept has to be kept as well: ALTER TABLE ... SET LOGGED'
FROM t WHERE t.relpersistence <> 'p'
UNION ALL
SELECT format('it takes part in inheritance with %s', (CASE WHEN i.inhrelid = t.oid THEN i.inhparent ELSE i.inhrelid END)::regclass)
FROM t JOIN pg_inherits i ON t.oid IN (i.inhrelid, i.inhparent)
UNION ALL
SELECT format('it is a typed table (of %s): ALTER TABLE ... NOT OF', t.reloftype::regtype) FROM t WHERE t.reloftype <> 0
UNION ALL
SELECT format('column %s is missing, or is not of a type that outboxd takes: docs/schema.md', w.name)
FROM (VALUES ('id', '{int2,int4,int8}'::regtype[]), ('created_at', '{timestamptz,timestamp}'::regtype[]),
             ('published_at', '{timestamptz,timestamp}'::regtype[])) w (name, types), t
WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = t.oid AND a.attname = w.name AND NOT a.attisdropped
                                               AND a.atttypid = ANY (w.types))
UNION ALL
SELECT format('column %I is an identity column; only id may be one', a.attname)
FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND a.attidentity <> '' AND a.attname <> 'id'
UNION ALL
SELECT 'it has no index on (id) WHERE published_at IS NULL: outboxd init adds it, without stopping writers'
FROM t
WHERE NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                  WHERE i.indrelid = t.oid AND i.indisvalid AND i.indnkeyatts = 1 AND a.attname = 'id'
                    AND pg_get_expr(i.indpred, i.indrelid) = '(published_at IS NULL)')
UNION ALL
SELECT format('trigger %I: it would fire for rows of before only; drop it, and make it again on the partitioned table if you need it', g.tgname)
FROM t JOIN pg_trigger g ON g.tgrelid = t.oid
WHERE NOT g.tgisinternal AND g.tgname <> 'outboxd_notify'
UNION ALL
SELECT format('foreign key %I of %s: %s', k.conname, k.conrelid::regclass,
              CASE WHEN k.confrelid = t.oid THEN 'nothing can refer to the partitioned table, which has no key; drop it'
                   ELSE 'partitions to come would not have it; drop it' END)
FROM t JOIN pg_constraint k ON k.contype = 'f' AND t.oid IN (k.conrelid, k.confrelid)
UNION ALL
SELECT format('rule %I: drop it', r.rulename) FROM t JOIN pg_rewrite r ON r.ev_class = t.oid
UNION ALL
SELECT 'row level security: partitions to come would not have its policies; ALTER TABLE ... DISABLE ROW LEVEL SECURITY and drop them'
FROM t WHERE t.relrowsecurity OR EXISTS (SELECT FROM pg_policy p WHERE p.polrelid = t.oid)
UNION ALL
SELECT format('publication %I includes it: its changes would go by other tables'' names, which stops subscribers that do not have these; take it out (and '
              'afterwards in again with publish_via_partition_root)', p.pubname)
FROM t JOIN pg_publication_tables p ON p.schemaname = t.nspname AND p.tablename = t.relname
UNION ALL
-- Views, functions and the like would go on with the plain table, which will be one partition of several.
SELECT DISTINCT format('%s depends on it and would see rows of before only; drop it, and make it again afterwards',
       coalesce((SELECT (CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END) || r.ev_class::regclass
                 FROM pg_rewrite r JOIN pg_class v ON v.oid = r.ev_class
                 WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid),
                pg_describe_object(d.classid, d.objid, 0)))
FROM t, pg_depend d JOIN mine ON d.refclassid = mine.classid AND d.refobjid = mine.objid
WHERE d.deptype = 'n'
  AND NOT (d.classid = 'pg_constraint'::regclass)
  AND NOT (d.classid = 'pg_rewrite'::regclass AND EXISTS (SELECT FROM pg_rewrite r WHERE r.oid = d.objid AND r.ev_class = t.oid))
  AND NOT EXISTS (SELECT FROM pg_depend o JOIN mine p ON o.refclassid = p.classid AND o.refobjid = p.objid
                  WHERE o.classid = d.classid AND o.objid = d.objid AND o.deptype <> 'n')
  AND NOT EXISTS (SELECT FROM mine p WHERE p.classid = d.classid AND p.objid = d.objid);
