-- Gives a lane back.  $1 the group's key, $2 the lane.
SELECT pg_advisory_unlock($1::int8 | $2::int8)
