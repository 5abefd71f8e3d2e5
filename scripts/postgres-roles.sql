-- The statements that give each role what it needs on one outbox table, and no more.  Called by postgres-roles.sh, which sets the variables:
-- table (as the command line has it), relay, maintenance, writer, consumer (role names), schema (of a table that is not there yet; empty for the first
-- of the search_path), stats and keep_owner (true or false).
--
-- One row a statement, in order.  A right on a table that is there already is granted again, which changes nothing.  docs/privileges.md explains each.
WITH given AS (
  SELECT :'relay'::text AS relay, :'maintenance'::text AS maintenance, :'writer'::text AS writer, :'consumer'::text AS consumer
), outbox AS (
  SELECT c.oid, c.relkind, c.relowner, n.nspname, n.oid AS namespace, format('%I.%I', n.nspname, c.relname) AS name,
         format('%I', n.nspname) AS schema, o.rolname AS owner, o.rolsuper AS is_owner_superuser
  FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace JOIN pg_roles o ON o.oid = c.relowner
  WHERE c.oid = to_regclass(:'table') AND c.relkind IN ('r', 'p')
), parts AS (
  SELECT c.oid, format('%I.%I', n.nspname, c.relname) AS name, row_number() OVER (ORDER BY c.relname) AS nth
  FROM outbox o
  JOIN pg_class c ON c.oid IN (SELECT t.relid FROM pg_partition_tree(o.oid) t WHERE t.relid <> o.oid)
  JOIN pg_namespace n ON n.oid = c.relnamespace
), where_to AS (
  -- The table's schema, or where outboxd init would make it.
  SELECT coalesce((SELECT o.schema FROM outbox o),
                  quote_ident(coalesce(nullif(:'schema', ''), current_schema()))) AS schema
), written AS (
  -- All columns but those that are outboxd's, and the id, which comes from its sequence.
  SELECT string_agg(quote_ident(a.attname), ', ' ORDER BY a.attnum) AS columns
  FROM outbox o JOIN pg_attribute a ON a.attrelid = o.oid
  WHERE a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
    AND a.attname NOT IN ('id', 'attempts', 'last_error', 'published_at')
), functions AS (
  -- What outboxd init made for applications.
  SELECT p.oid, p.proname AS name, p.proowner AS owner, p.oid::regprocedure::text AS signature, row_number() OVER (ORDER BY p.proname) AS nth
  FROM outbox o JOIN pg_proc p ON p.pronamespace = o.namespace AND p.proname IN ('outbox_record', 'outbox_process_once', 'outbox_uuid_v7')
  WHERE starts_with(obj_description(p.oid, 'pg_proc'), 'outboxd: ')
), member AS (
  SELECT r.rolname AS of, m.rolname AS name
  FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
), statements AS (
  SELECT 1 AS step, r.nth AS nth, format('CREATE ROLE %I %s', r.name, r.login) AS sql
  FROM given g, LATERAL (VALUES (1, g.relay, 'LOGIN'), (2, g.maintenance, 'LOGIN'), (3, g.writer, 'NOLOGIN'), (4, g.consumer, 'NOLOGIN')) r (nth, name, login)
  WHERE NOT EXISTS (SELECT FROM pg_roles p WHERE p.rolname = r.name)
  UNION ALL
  SELECT 2, 0, format('GRANT CONNECT ON DATABASE %I TO %I, %I, %I, %I', current_database(), g.relay, g.maintenance, g.writer, g.consumer) FROM given g
  UNION ALL
  SELECT 3, 0, format('GRANT USAGE ON SCHEMA %s TO %I, %I, %I, %I', w.schema, g.relay, g.maintenance, g.writer, g.consumer) FROM given g, where_to w
  UNION ALL
  -- Whoever maintains can also relay.
  SELECT 4, 0, format('GRANT %I TO %I', g.relay, g.maintenance) FROM given g
  WHERE NOT EXISTS (SELECT FROM member m WHERE m.of = g.relay AND m.name = g.maintenance)
  UNION ALL
  -- The alert about old transactions: those of other roles are hidden without it.
  SELECT 5, 0, format('GRANT pg_read_all_stats TO %I', g.relay) FROM given g
  WHERE :'stats'::boolean AND NOT EXISTS (SELECT FROM member m WHERE m.of = 'pg_read_all_stats' AND m.name = g.relay)
  UNION ALL
  -- Partitions are tables: made in the schema, and given to the table's owner, who has to be allowed there too.
  SELECT 6, 0, format('GRANT CREATE ON SCHEMA %s TO %I', w.schema, g.maintenance)
  FROM given g, where_to w WHERE NOT EXISTS (SELECT FROM outbox o WHERE o.relkind = 'r')
  UNION ALL
  SELECT 7, 0, format('GRANT CREATE ON SCHEMA %s TO %I', o.schema, o.owner)
  FROM outbox o WHERE :'keep_owner'::boolean AND o.relkind = 'p' AND NOT has_schema_privilege(o.relowner, o.namespace, 'CREATE')
  UNION ALL
  SELECT 8, 0, format('GRANT %I TO %I', o.owner, g.maintenance)
  FROM outbox o, given g WHERE :'keep_owner'::boolean AND o.relkind = 'p' AND o.owner <> g.maintenance
    AND NOT EXISTS (SELECT FROM member m WHERE m.of = o.owner AND m.name = g.maintenance)
  UNION ALL
  -- The table's former owner keeps all rights on it, as a member of the new one.
  SELECT 9, 0, format('GRANT %I TO %I', g.maintenance, o.owner)
  FROM outbox o, given g
  WHERE NOT :'keep_owner'::boolean AND o.relkind = 'p' AND o.owner <> g.maintenance AND NOT o.is_owner_superuser
  UNION ALL
  SELECT 10, t.nth, format('ALTER TABLE %s OWNER TO %I', t.name, g.maintenance)
  FROM outbox o, given g, LATERAL (SELECT 0 AS nth, o.oid, o.name UNION ALL SELECT p.nth, p.oid, p.name FROM parts p) t
  JOIN pg_class c ON c.oid = t.oid
  WHERE NOT :'keep_owner'::boolean AND o.relkind = 'p' AND pg_get_userbyid(c.relowner) <> g.maintenance
  UNION ALL
  SELECT 11, t.nth, format('GRANT SELECT, UPDATE (attempts, last_error, published_at) ON %s TO %I', t.name, g.relay)
  FROM given g, (SELECT 0 AS nth, o.name FROM outbox o UNION ALL SELECT p.nth, p.name FROM parts p) t
  UNION ALL
  SELECT 12, 0, format('GRANT DELETE ON %s TO %I', o.name, g.maintenance) FROM outbox o, given g WHERE o.relkind = 'r'
  UNION ALL
  SELECT 13, 0, format('GRANT SELECT, DELETE ON %I.processed_messages TO %I', o.nspname, g.maintenance)
  FROM outbox o, given g WHERE to_regclass(format('%I.processed_messages', o.nspname)) IS NOT NULL
  UNION ALL
  -- SELECT of what INSERT ... RETURNING asks for.
  SELECT 14, 0, format('GRANT INSERT (%s), SELECT (id, message_id) ON %s TO %I', w.columns, o.name, g.writer)
  FROM outbox o, given g, written w
  UNION ALL
  -- Of a serial column; an identity column needs none.
  SELECT 15, 0, format('GRANT USAGE ON SEQUENCE %I.%I TO %I', n.nspname, s.relname, g.writer)
  FROM outbox o
  JOIN pg_attribute a ON a.attrelid = o.oid AND a.attname = 'id' AND a.attidentity = ''
  JOIN pg_attrdef f ON f.adrelid = o.oid AND f.adnum = a.attnum
  JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid AND d.refclassid = 'pg_class'::regclass
  JOIN pg_class s ON s.oid = d.refobjid AND s.relkind = 'S'
  JOIN pg_namespace n ON n.oid = s.relnamespace
  CROSS JOIN given g
  UNION ALL
  -- init, which replaces what has changed, is run as maintenance.
  SELECT 16, f.nth, format('ALTER FUNCTION %s OWNER TO %I', f.signature, g.maintenance)
  FROM outbox o, given g, functions f
  WHERE NOT :'keep_owner'::boolean AND o.relkind = 'p' AND pg_get_userbyid(f.owner) <> g.maintenance
  UNION ALL
  SELECT 17, f.nth, format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, g.writer)
  FROM given g, functions f WHERE f.name IN ('outbox_record', 'outbox_uuid_v7')
  UNION ALL
  SELECT 18, f.nth, format('GRANT EXECUTE ON FUNCTION %s TO %I', f.signature, g.consumer)
  FROM given g, functions f WHERE f.name = 'outbox_process_once'
  UNION ALL
  -- SELECT of what ON CONFLICT compares.
  SELECT 19, 0, format('GRANT INSERT (message_id, consumer), SELECT (message_id, consumer) ON %I.processed_messages TO %I', o.nspname, g.consumer)
  FROM outbox o, given g WHERE to_regclass(format('%I.processed_messages', o.nspname)) IS NOT NULL
)
SELECT s.sql || ';' FROM statements s ORDER BY s.step, s.nth
