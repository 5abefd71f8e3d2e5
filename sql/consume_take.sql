-- Tries the locks of lanes.  $1 the group's key, $2 lanes.
SELECT l.lane, pg_try_advisory_lock($1::int8 | l.lane::int8)
FROM unnest($2::int4[]) AS l (lane)
