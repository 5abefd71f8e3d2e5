-- The sequences that column id of table $1 (an oid) draws from, owned by it or not, and how many ids each hands out at a time.
SELECT format('%I.%I', n.nspname, c.relname), q.seqcache
FROM pg_sequence q
JOIN pg_class c ON c.oid = q.seqrelid
JOIN pg_namespace n ON n.oid = c.relnamespace
JOIN pg_attribute a ON a.attrelid = $1::oid AND a.attname = 'id' AND NOT a.attisdropped
WHERE EXISTS (SELECT FROM pg_depend d
              WHERE d.classid = 'pg_class'::regclass AND d.objid = q.seqrelid AND d.refclassid = 'pg_class'::regclass
                AND d.refobjid = a.attrelid AND d.refobjsubid = a.attnum)
   OR EXISTS (SELECT FROM pg_attrdef f
              JOIN pg_depend d ON d.classid = 'pg_attrdef'::regclass AND d.objid = f.oid
              WHERE f.adrelid = a.attrelid AND f.adnum = a.attnum
                AND d.refclassid = 'pg_class'::regclass AND d.refobjid = q.seqrelid)
ORDER BY q.seqcache DESC, 1
