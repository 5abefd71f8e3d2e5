-- The lease session joins the fleet.  $1 the table's oid as a lock key, $2 the membership key.
SELECT pg_try_advisory_lock_shared($1::int4, $2::int4)
