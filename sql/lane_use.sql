-- A claimer takes the use lock of lanes.  $1 the table's oid as a lock key, $2 lanes, $3 what to add to a lane for its use key.
SELECT l.lane, pg_try_advisory_lock_shared($1::int4, $3::int4 + l.lane)
FROM unnest($2::int4[]) AS l (lane)
