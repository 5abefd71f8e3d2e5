-- The table that a name ($1) stands for now: its oid, 0 for none.
SELECT coalesce(to_regclass($1::text)::oid, 0)
