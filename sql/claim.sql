-- Claims a batch: the first pending messages behind the cursor, locked until the transaction ends.
--
-- look: what is pending, without a lock and without loading payloads.  fit: how far the limits of rows and bytes reach.  The last part
-- locks exactly these and returns them.  All three see one snapshot: where fewer rows come back than fit counted, another session holds
-- the missing ones, and the caller has to hold back the later messages of their aggregates.
--
-- $1 cursor (last id claimed)     $2 --max-attempts     $3 lanes to claim, NULL for all     $4 aggregate keys held back, NULL for none
-- $5 rows at most                 $6 bytes at most      $7 text bytes expected of one stored byte of a compressed payload
WITH look AS MATERIALIZED (
  SELECT m.id, :look_bytes AS bytes
  FROM :table m
  WHERE m.published_at IS NULL AND m.id > $1::int8 AND :attempts < $2::int4
    AND ($3::int4[] IS NULL OR :lane = ANY ($3::int4[]))
    AND ($4::int8[] IS NULL OR :aggregate_key NOT IN (SELECT unnest($4::int8[])))
  ORDER BY m.id
  LIMIT $5::int8
), fit AS MATERIALIZED (
  SELECT min(s.id) AS first_id, max(s.id) AS last_id, count(*)::int4 AS fit_n, (SELECT count(*)::int4 FROM look) AS looked_n
  FROM (
    SELECT l.id, sum(l.bytes) OVER w AS total_bytes, row_number() OVER w AS nth
    FROM look l
    WINDOW w AS (ORDER BY l.id ROWS UNBOUNDED PRECEDING)
  ) s
  WHERE s.total_bytes <= $6::int8 OR s.nth = 1
)
SELECT m.tableoid, m.ctid, m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text,
       m.payload::text, :attempts, m.created_at::timestamptz, :lane_hash, :aggregate_key, :compressed_bytes,
       (SELECT looked_n FROM fit), (SELECT fit_n FROM fit), statement_timestamp():headers
FROM :table m
WHERE m.published_at IS NULL AND m.id >= (SELECT first_id FROM fit) AND m.id <= (SELECT last_id FROM fit)
  AND :attempts < $2::int4
  AND ($3::int4[] IS NULL OR :lane = ANY ($3::int4[]))
  AND ($4::int8[] IS NULL OR :aggregate_key NOT IN (SELECT unnest($4::int8[])))
ORDER BY m.id
LIMIT $5::int8
FOR UPDATE OF m SKIP LOCKED
