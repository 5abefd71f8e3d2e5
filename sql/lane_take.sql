-- Takes lanes: the gate, then the use lock exclusively for an instant, which proves that no claimer of a former owner is left.
-- $1 the table's oid as a lock key, $2 lanes, $3 and $4 what to add to a lane for its gate and its use key.  Returns lane and success.
SELECT l.lane,
       CASE WHEN pg_try_advisory_lock($1::int4, $3::int4 + l.lane)
            THEN CASE WHEN pg_try_advisory_lock($1::int4, $4::int4 + l.lane)
                      THEN pg_advisory_unlock($1::int4, $4::int4 + l.lane)
                      ELSE NOT pg_advisory_unlock($1::int4, $3::int4 + l.lane)
                 END
            ELSE false
       END
FROM unnest($2::int4[]) AS l (lane)
