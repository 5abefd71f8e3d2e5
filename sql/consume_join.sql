-- A worker joins those of its group.  $1 the group's key, $2 the number that stands for membership.
SELECT pg_try_advisory_lock_shared($1::int8 | $2::int8)
