-- The statement that puts a partitioned table in the place of the plain one, which becomes its first partition.  Called by upgrade-to-partitioned.sh
-- with the variables table and bound; returns the text of one DO, so that one statement_timeout bounds all of it.
--
-- Run under ACCESS EXCLUSIVE on the table, so what is read here is what holds.
WITH t AS (
  SELECT c.oid, c.relname, c.relowner, c.relacl, c.reltablespace, n.nspname,
         format('%I.%I', n.nspname, c.relname) AS new, format('%I.%I', n.nspname, c.relname || '_plain') AS old,
         format('%I.%I', n.nspname, c.relname || to_char(:'bound'::timestamptz, '"_y"YYYY"m"MM"d"DD')) AS first,
         quote_ident(pg_get_userbyid(c.relowner)) AS owner
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
  WHERE c.oid = to_regclass(:'table')
), granted AS (
  SELECT NULL::name AS attname, g.grantee, g.privilege_type, g.is_grantable FROM t CROSS JOIN LATERAL aclexplode(t.relacl) g
  WHERE g.grantee <> t.relowner
  UNION ALL
  SELECT a.attname, g.grantee, g.privilege_type, g.is_grantable
  FROM t JOIN pg_attribute a ON a.attrelid = t.oid AND NOT a.attisdropped CROSS JOIN LATERAL aclexplode(a.attacl) g
  WHERE g.grantee <> t.relowner
), identity AS (
  SELECT a.attidentity, q.*, format('%I.%I', n.nspname, s.relname) AS sequence, pg_sequence_last_value(s.oid::regclass) AS last
  FROM t
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attname = 'id' AND a.attidentity <> ''
  JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.refobjsubid = a.attnum
                  AND d.classid = 'pg_class'::regclass AND d.deptype = 'i'
  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_sequence q ON q.seqrelid = s.oid
), steps (step, nth, sql) AS (
  -- The locks by which relays own lanes go by the table's oid, which changes: none may be at work, and none can come in, as the caller holds what
  -- they would have to share.
  SELECT 1, 0, format($sql$IF to_regclass(%L) IS DISTINCT FROM %s::regclass THEN
    RAISE EXCEPTION 'the table has been changed by somebody else meanwhile' USING ERRCODE = 'lock_not_available';
  END IF$sql$, t.new, t.oid) FROM t
  UNION ALL
  SELECT 2, 0, format($sql$IF EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
             WHERE l.locktype = 'advisory' AND l.objsubid = 2 AND l.classid = %s AND l.objid BETWEEN 65536 AND 393215
               AND l.pid <> pg_backend_pid()) THEN
    RAISE EXCEPTION 'a relay is at work on the table' USING ERRCODE = 'lock_not_available';
  END IF$sql$, t.oid) FROM t
  UNION ALL
  SELECT 3, 0, format('ALTER TABLE %s RENAME TO %I', t.new, t.relname || '_plain') FROM t
  UNION ALL
  SELECT 4, 0, format('CREATE TABLE %s (LIKE %s INCLUDING DEFAULTS INCLUDING CONSTRAINTS INCLUDING GENERATED INCLUDING STORAGE INCLUDING COMPRESSION '
                      'INCLUDING COMMENTS) PARTITION BY RANGE (created_at)', t.new, t.old) FROM t
  UNION ALL
  SELECT 5, 0, format('ALTER TABLE %s DROP CONSTRAINT outboxd_bound', t.new) FROM t
  UNION ALL
  SELECT 6, 0, format('ALTER TABLE %s OWNER TO %s', t.new, t.owner) FROM t
  UNION ALL
  -- What ALTER DEFAULT PRIVILEGES has given to a new table is not the old one's.
  SELECT 7, 0, format('REVOKE ALL ON %s FROM %s', t.new, CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END)
  FROM t, pg_default_acl f CROSS JOIN LATERAL aclexplode(f.defaclacl) g
  WHERE f.defaclobjtype = 'r' AND f.defaclrole = (SELECT r.oid FROM pg_roles r WHERE r.rolname = current_user) AND g.grantee <> t.relowner
  UNION ALL
  SELECT 8, row_number() OVER (ORDER BY g.grantee, g.is_grantable),
         format('GRANT %s ON %s TO %s%s',
                string_agg(g.privilege_type || coalesce(' (' || quote_ident(g.attname) || ')', ''), ', ' ORDER BY g.privilege_type, g.attname), t.new,
                CASE WHEN g.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(g.grantee)) END,
                CASE WHEN g.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
  FROM t, granted g GROUP BY t.new, g.grantee, g.is_grantable
  UNION ALL
  SELECT 9, 0, format('COMMENT ON TABLE %s IS %L', t.new, obj_description(t.oid, 'pg_class')) FROM t WHERE obj_description(t.oid, 'pg_class') IS NOT NULL
  UNION ALL
  -- A sequence goes with the table that owns it, and the plain one is dropped some day.
  SELECT 10, d.objid::int8, format('ALTER SEQUENCE %I.%I OWNED BY %s.%I', n.nspname, s.relname, t.new, a.attname)
  FROM t
  JOIN pg_depend d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = t.oid AND d.classid = 'pg_class'::regclass AND d.deptype = 'a'
  JOIN pg_class s ON s.oid = d.objid AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  JOIN pg_attribute a ON a.attrelid = t.oid AND a.attnum = d.refobjsubid
  UNION ALL
  -- An identity column cannot hand its sequence on: the new one has its name and goes on where it was.
  SELECT 11, 0, format('ALTER TABLE %s ALTER id DROP IDENTITY', t.old) FROM t, identity
  UNION ALL
  SELECT 12, 0, format('ALTER TABLE %s ALTER id ADD GENERATED %s AS IDENTITY (SEQUENCE NAME %s START WITH %s INCREMENT BY %s MINVALUE %s MAXVALUE %s CACHE %s%s)',
                       t.new, CASE i.attidentity WHEN 'a' THEN 'ALWAYS' ELSE 'BY DEFAULT' END, i.sequence,
                       CASE WHEN i.last IS NULL THEN i.seqstart ELSE i.last + i.seqincrement END, i.seqincrement, i.seqmin, i.seqmax, i.seqcache,
                       CASE WHEN i.seqcycle THEN ' CYCLE' ELSE '' END)
  FROM t, identity i
  UNION ALL
  SELECT 13, 0, format('ALTER TABLE %s REPLICA IDENTITY FULL', t.new) FROM t
  UNION ALL
  SELECT 14, 0, format('CREATE INDEX ON %s (id) WHERE published_at IS NULL', t.new) FROM t
  UNION ALL
  -- Neither scans nor builds anything: the constraint outboxd_bound proves that the rows fit, and the pending index is there.
  SELECT 15, 0, format('ALTER TABLE %s ATTACH PARTITION %s FOR VALUES FROM (MINVALUE) TO (%L)', t.new, t.old, :'bound') FROM t
  UNION ALL
  -- Later partitions are made like the newest one: with the settings of sql/init_settings.sql, and no key.
  SELECT 16, 0, format('CREATE TABLE %s PARTITION OF %s FOR VALUES FROM (%L) TO (%L) '
                       'WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 20000)%s',
                       t.first, t.new, :'bound', to_char(:'bound'::timestamptz + interval '1 day', 'YYYY-MM-DD HH24:MI:SS+00'),
                       (SELECT ' TABLESPACE ' || quote_ident(s.spcname) FROM pg_tablespace s WHERE s.oid = t.reltablespace)) FROM t
  UNION ALL
  SELECT 17, 0, format('ALTER TABLE %s OWNER TO %s', t.first, t.owner) FROM t
  UNION ALL
  SELECT 18, 0, format('ALTER TABLE %s REPLICA IDENTITY FULL', t.first) FROM t
  UNION ALL
  SELECT 19, 0, format('DROP TRIGGER outboxd_notify ON %s', t.old) FROM t JOIN pg_trigger g ON g.tgrelid = t.oid AND g.tgname = 'outboxd_notify'
  UNION ALL
  SELECT 20, 0, format('CREATE TRIGGER outboxd_notify AFTER INSERT ON %s FOR EACH STATEMENT EXECUTE FUNCTION %s()', t.new, g.tgfoid::regproc)
  FROM t JOIN pg_trigger g ON g.tgrelid = t.oid AND g.tgname = 'outboxd_notify'
)
SELECT format(E'DO %L', format(E'BEGIN\n  %s;\nEND', string_agg(s.sql, E';\n  ' ORDER BY s.step, s.nth))) AS exchange
FROM steps s
