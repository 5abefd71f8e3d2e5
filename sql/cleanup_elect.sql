-- Tries to become the one maintainer of a table.  $1 the table's oid as a lock key, $2 the maintenance key.
SELECT pg_try_advisory_lock($1::int4, $2::int4)
