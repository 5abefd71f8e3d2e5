-- Claims a batch in one walk of the pending index, where claim.sql needs two: as long as nobody else holds a row locked and no payload is out of
-- proportion.  :locking: either NOWAIT, so that a row held by another session is an error here, never passed over, and the order holds of itself; or
-- nothing, where the caller marks the rows before it does anything with them (sql/settle_published.sql, in the same snapshot: REPEATABLE READ), which
-- fails on such a row, and on one that was changed since.  A row whose text may take more than its share of the limit of bytes comes without
-- payload and with 0 for "fits"; the caller then gives all of it back.  In each case the claim is made again with claim.sql.  Parameters and forms as there.
WITH bounds AS MATERIALIZED (
  :bounds
)
SELECT m.tableoid, m.ctid, m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text,
       CASE WHEN :fits THEN m.payload::text END, :attempts, m.created_at::timestamptz, :lane_hash, :aggregate_key, :compressed_bytes,
       0::int4, (:fits)::int4, statement_timestamp(), (SELECT snapshot FROM bounds), :revived:fitting_headers
FROM :table m
WHERE :claimable AND m.id > (SELECT start_id FROM bounds)
  :not_in_flight
ORDER BY m.id
LIMIT $5::int8
:locking
