-- Marks messages of one partition as published.  $1: their ctids, which the claim's row locks or its snapshot keep in place.  Returns where the rows
-- are then: a mark that is made before the publication may have to be taken back.
UPDATE :leaf SET published_at = clock_timestamp() WHERE ctid = ANY ($1::tid[]) RETURNING ctid, id::int8
