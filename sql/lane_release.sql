-- Gives gates back.  $1 the table's oid as a lock key, $2 lanes, $3 what to add to a lane for its gate key.
SELECT l.lane, pg_advisory_unlock($1::int4, $3::int4 + l.lane)
FROM unnest($2::int4[]) AS l (lane)
