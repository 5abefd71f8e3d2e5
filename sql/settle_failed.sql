-- Counts an attempt of messages of one partition, and takes back their mark where they have one.  $1: their ctids, $2: what Redis said of each,
-- cut to what last_error holds.
UPDATE :leaf m SET published_at = NULL, attempts = coalesce(m.attempts, 0) + 1, last_error = left(f.error, :error_chars)
FROM unnest($1::tid[], $2::text[]) AS f (place, error)
WHERE m.ctid = f.place
