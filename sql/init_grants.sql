-- What is granted on table $1 (an oid) and not on one of its partitions, as GRANT statements: the relay marks messages in the
-- partition they lie in, and there PostgreSQL looks at that partition's own privileges.
WITH granted AS (
  SELECT c.oid, NULL::name AS attname, g.grantee, g.privilege_type, g.is_grantable
  FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) g
  WHERE c.oid IN (SELECT t.relid FROM pg_partition_tree($1::oid::regclass) t)
  UNION ALL
  SELECT a.attrelid, a.attname, g.grantee, g.privilege_type, g.is_grantable
  FROM pg_attribute a CROSS JOIN LATERAL aclexplode(a.attacl) g
  WHERE a.attrelid IN (SELECT t.relid FROM pg_partition_tree($1::oid::regclass) t) AND NOT a.attisdropped
)
SELECT format('GRANT %s ON %I.%I TO %s%s',
              string_agg(p.privilege_type || coalesce(' (' || quote_ident(p.attname) || ')', ''), ', '),
              n.nspname, c.relname,
              CASE WHEN p.grantee = 0 THEN 'PUBLIC' ELSE quote_ident(pg_get_userbyid(p.grantee)) END,
              CASE WHEN p.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END)
FROM granted p
JOIN pg_partition_tree($1::oid::regclass) t ON t.relid <> p.oid
JOIN pg_class c ON c.oid = t.relid
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.oid = $1::oid
  AND p.grantee <> c.relowner
  AND NOT EXISTS (
    SELECT FROM granted h
    WHERE h.oid = c.oid AND h.attname IS NOT DISTINCT FROM p.attname AND h.grantee = p.grantee
      AND h.privilege_type = p.privilege_type AND (h.is_grantable OR NOT p.is_grantable))
GROUP BY n.nspname, c.relname, p.grantee, p.is_grantable
ORDER BY n.nspname, c.relname
