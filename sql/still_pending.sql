-- Which of the messages that a journal names ($1 ids, $2 message_ids) are still pending?  Returns their places in the arrays, from 1.
SELECT j.place
FROM unnest($1::int8[], $2::text[]) WITH ORDINALITY AS j (id, message_id, place)
JOIN :table m ON m.id = j.id
WHERE m.published_at IS NULL AND m.message_id::text = j.message_id
