-- The messages at the places $2 of partitions $1, as long as they are still those with ids $3: a page of what replay_keys.sql found.
-- The columns are the claim's (include/outboxd/batch.h).  :range and :span lead to their partitions, the latter by their created_at, $4.
SELECT m.tableoid, m.ctid, m.id::int8, m.message_id::text, m.aggregate_type::text, m.aggregate_id::text, m.event_type::text,
       m.payload::text, 0::int4, m.created_at::timestamptz, :lane_hash, :aggregate_key, 0::int4, 0::int4, 0::int4, statement_timestamp(),
       NULL::text, NULL::int8:headers
FROM unnest($1::oid[], $2::tid[], $3::int8[]) AS k (leaf, place, id)
JOIN :table m ON m.ctid = k.place AND m.tableoid = k.leaf AND m.id = k.id
WHERE m.published_at IS NOT NULL
  :range
  :span
ORDER BY m.id
