-- What keeps partition $1 (an oid) from being dropped without CASCADE, or from being looked at quickly: one row an object, in words.
WITH mine AS (
  SELECT 'pg_class'::regclass AS classid, c.oid AS objid FROM pg_class c WHERE c.oid = $1::oid
  UNION ALL SELECT 'pg_type'::regclass, t.oid FROM pg_type t JOIN pg_class c ON c.oid = $1::oid
                                               WHERE t.oid = c.reltype OR t.typelem = c.reltype
  UNION ALL SELECT 'pg_class'::regclass, i.indexrelid FROM pg_index i WHERE i.indrelid = $1::oid
  UNION ALL SELECT 'pg_constraint'::regclass, k.oid FROM pg_constraint k WHERE k.conrelid = $1::oid
)
SELECT coalesce((SELECT (CASE v.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END) || r.ev_class::regclass
                 FROM pg_rewrite r JOIN pg_class v ON v.oid = r.ev_class
                 WHERE d.classid = 'pg_rewrite'::regclass AND r.oid = d.objid),
                pg_describe_object(d.classid, d.objid, 0)) AS what
FROM pg_depend d
JOIN mine ON d.refclassid = mine.classid AND d.refobjid = mine.objid
WHERE d.deptype = 'n'
  -- What belongs to the partition itself goes with it.
  AND NOT EXISTS (SELECT FROM pg_depend o JOIN mine p ON o.refclassid = p.classid AND o.refobjid = p.objid
                  WHERE o.classid = d.classid AND o.objid = d.objid AND o.deptype <> 'n')
  AND NOT EXISTS (SELECT FROM mine p WHERE p.classid = d.classid AND p.objid = d.objid)
UNION
SELECT 'its owner ' || quote_ident(pg_get_userbyid(c.relowner)) || ', whose rights ' || quote_ident(current_user) || ' does not have'
FROM pg_class c WHERE c.oid = $1::oid AND NOT pg_has_role(c.relowner, 'USAGE')
UNION
SELECT 'the lack of an index on (id) WHERE published_at IS NULL; outboxd init adds it'
WHERE NOT EXISTS (SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
                  WHERE i.indrelid = $1::oid AND i.indisvalid AND a.attname = 'id'
                    AND pg_get_expr(i.indpred, i.indrelid) = '(published_at IS NULL)')
ORDER BY 1
LIMIT 10
