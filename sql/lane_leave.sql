-- A claimer gives the use lock of lanes back.  Parameters as in lane_use.sql.
SELECT l.lane, pg_advisory_unlock_shared($1::int4, $3::int4 + l.lane)
FROM unnest($2::int4[]) AS l (lane)
