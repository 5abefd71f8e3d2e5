-- Takes back the mark of messages of one partition.  $1: their ctids.
UPDATE :leaf SET published_at = NULL WHERE ctid = ANY ($1::tid[])
