-- Where the published messages are that a replay is about, in id order.  The cursor outlives its transaction: the server keeps these few bytes a
-- message (in a temporary file where they are many) and no snapshot, however long the replay takes.  Payloads are read later, by replay_page.sql.
--
-- weight: a bound of the bytes that the message's text takes, from the stored size alone: numbers and escapes of jsonb may double it (as in the
-- claim), and what is compressed may be 255 times as large before that (lz4; pglz: 87 times).
-- $1..$3 as in selector.sql, $4 --after-id; :range is what --from and --to say.
DECLARE replay SCROLL CURSOR WITH HOLD FOR
SELECT m.tableoid::text,
       m.ctid::text,
       m.id::int8,
       m.created_at::timestamptz::text,
       coalesce(m.last_error LIKE 'discarded: %', false) AS is_discarded,
       coalesce(m.message_id::text, '') = '' AS is_unnamed,
       :weight AS weight
FROM :table m
WHERE m.published_at IS NOT NULL AND m.id > $4::int8
  AND :selected
  :range
ORDER BY m.id
