-- Under the lock that keeps writers out: is table $1 (an oid) still the one of this name ($2), and no partition?
SELECT count(*) FROM pg_class c WHERE c.oid = $1::oid AND c.oid = to_regclass($2) AND NOT c.relispartition
