-- Claims a batch: the first pending messages from the horizon on, locked until the transaction ends.
--
-- bounds: where to start, so that what committed late is not overtaken (include/outboxd/horizon.h).  look: what is pending from there on,
-- without a lock and without loading payloads.  fit: how far the limits of rows and bytes reach.  The last part locks exactly these and
-- returns them.  All of it sees one snapshot: where fewer rows come back than fit counted, another session holds the missing ones, and
-- the caller has to hold back the later messages of their aggregates.
--
-- The open batches' rows are left out by their ids when locking too.  That they are locked does not do: a batch that is given back while this
-- runs has free rows, which are in the streams already, and nobody has read the journals again yet.
--
-- There is a form of this statement for each combination of the lists that are needed (include/outboxd/claim.h): the part of a list is set up
-- again for every partition and both scans, also when the list is NULL, and that costs as much as all the rest.
--
-- $1 near: where to start at the latest       $2 --max-attempts     $3 lanes to claim, NULL for all     $4 aggregate keys held back, NULL for none
-- $5 rows at most                             $6 bytes at most      $7 text bytes expected of one stored byte of a compressed payload
-- $8, $9 transactions that were in progress when near was passed, and above which id theirs lie       $10 ids of batches that are open, NULL for none
WITH bounds AS MATERIALIZED (
  SELECT least($1::int8, (SELECT min(o.low)
                          FROM unnest($8::xid8[], $9::int8[]) AS o (xid, low)
                          WHERE pg_visible_in_snapshot(o.xid, pg_current_snapshot()))) AS start_id,
         pg_current_snapshot()::text || ':' || pg_current_xact_id()::text AS snapshot
), look AS MATERIALIZED (
  SELECT m.id, :look_bytes AS bytes
  FROM :table m
  WHERE :claimable AND m.id > (SELECT start_id FROM bounds)
    :not_in_flight
  ORDER BY m.id
  LIMIT $5::int8
), looked AS MATERIALIZED (
  SELECT min(l.id) AS first_id, max(l.id) AS last_id, count(*)::int4 AS n, coalesce(sum(l.bytes), 0) AS bytes
  FROM look l
), cut AS MATERIALIZED ( -- read only when not everything fits; a message larger than the limit goes alone
  SELECT max(s.id) AS last_id, count(*)::int4 AS n
  FROM (
    SELECT l.id, sum(l.bytes) OVER w AS total_bytes, row_number() OVER w AS nth
    FROM look l
    WINDOW w AS (ORDER BY l.id ROWS UNBOUNDED PRECEDING)
  ) s
  WHERE s.total_bytes <= $6::int8 OR s.nth = 1
), fit AS MATERIALIZED (
  SELECT l.first_id, l.n AS looked_n,
         CASE WHEN l.bytes <= $6::int8 THEN l.last_id ELSE (SELECT last_id FROM cut) END AS last_id,
         CASE WHEN l.bytes <= $6::int8 THEN l.n ELSE (SELECT n FROM cut) END AS fit_n
  FROM looked l
)
SELECT m.tableoid, m.ctid, m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text,
       m.payload::text, :attempts, m.created_at::timestamptz, :lane_hash, :aggregate_key, :compressed_bytes,
       (SELECT looked_n FROM fit), (SELECT fit_n FROM fit), statement_timestamp(),
       CASE WHEN m.id = (SELECT first_id FROM fit) THEN (SELECT snapshot FROM bounds) END:headers
FROM :table m
WHERE :claimable AND m.id >= (SELECT first_id FROM fit) AND m.id <= (SELECT last_id FROM fit)
  :not_in_flight
ORDER BY m.id
LIMIT $5::int8
FOR UPDATE OF m SKIP LOCKED
