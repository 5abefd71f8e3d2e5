-- What has become of table $1 (an oid): is it a partition, is it on its way out?  No row: it is gone.
SELECT c.relispartition, coalesce((SELECT i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = c.oid), false)
FROM pg_class c
WHERE c.oid = $1::oid
