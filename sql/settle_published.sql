-- Marks messages of one partition as published.  $1: their ctids, which the claim's row locks keep in place.
UPDATE :leaf SET published_at = clock_timestamp() WHERE ctid = ANY ($1::tid[])
