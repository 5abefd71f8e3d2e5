-- Claims a batch: the first pending messages from the horizon on, locked until the transaction ends.  The careful way, for rows that another
-- session may hold locked and for payloads of any size; claim_simple.sql is the usual one.
--
-- bounds: where to start, so that what committed late is not overtaken (include/outboxd/horizon.h).  look: what is pending from there on,
-- without a lock and without loading payloads.  sized: what each takes; a large one (:is_large) is printed to be measured, so these are looked at
-- :large_max at a time.  fit: how far the limits of rows and bytes reach; a message larger than the limit goes alone.  The last part locks exactly these and
-- returns them.  All of it sees one snapshot: where fewer rows come back than fit counted, another session holds the missing ones, and
-- the caller has to hold back the later messages of their aggregates.
--
-- The open batches' rows are left out by their ids when locking too.  That they are locked does not do: a batch that is given back while this
-- runs has free rows, which are in the streams already, and nobody has read the journals again yet.
--
-- There is a form of this statement for each combination of the lists that are needed (include/outboxd/claim.h): the part of a list is set up
-- again for every partition and both scans, also when the list is NULL, and that costs as much as all the rest.
--
-- :revived: a message that was dead and has been given new attempts has none and still its last_error; the transaction that did that.
--
-- $1 near: where to start at the latest       $2 --max-attempts     $3 lanes to claim, NULL for all     $4 aggregate keys held back, NULL for none
-- $5 rows at most                             $6 bytes at most      $7 text bytes expected of one stored byte of a compressed payload
-- $8, $9 transactions that were in progress when near was passed, and above which id theirs lie       $10 ids of batches that are open, NULL for none
WITH bounds AS MATERIALIZED (
  :bounds
), look AS MATERIALIZED (
  SELECT m.id, :estimated_bytes AS bytes, :is_large AS is_large, m.payload:stored_headers
  FROM :table m
  WHERE :claimable AND m.id > (SELECT start_id FROM bounds)
    :not_in_flight
  ORDER BY m.id
  LIMIT $5::int8
), counted AS (
  SELECT m.*, count(*) FILTER (WHERE m.is_large) OVER (ORDER BY m.id ROWS UNBOUNDED PRECEDING) AS large_nth
  FROM look m
), sized AS (
  SELECT m.id, CASE WHEN m.is_large THEN :exact_bytes ELSE m.bytes END AS bytes
  FROM counted m
  WHERE m.large_nth <= :large_max
), summed AS MATERIALIZED (
  SELECT s.id, sum(s.bytes) OVER w AS total_bytes, row_number() OVER w AS nth
  FROM sized s
  WINDOW w AS (ORDER BY s.id ROWS UNBOUNDED PRECEDING)
), fit AS MATERIALIZED (
  SELECT min(s.id) AS first_id, max(s.id) AS last_id, count(*)::int4 AS fit_n, (SELECT count(*)::int4 FROM look) AS looked_n
  FROM summed s
  WHERE s.total_bytes <= $6::int8 OR s.nth = 1
)
SELECT m.tableoid, m.ctid, m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text,
       m.payload::text, :attempts, m.created_at::timestamptz, :lane_hash, :aggregate_key, :compressed_bytes,
       (SELECT looked_n FROM fit), (SELECT fit_n FROM fit), statement_timestamp(),
       CASE WHEN m.id = (SELECT first_id FROM fit) THEN (SELECT snapshot FROM bounds) END, :revived:headers
FROM :table m
WHERE :claimable AND m.id >= (SELECT first_id FROM fit) AND m.id <= (SELECT last_id FROM fit)
  :not_in_flight
ORDER BY m.id
LIMIT $5::int8
FOR UPDATE OF m SKIP LOCKED
