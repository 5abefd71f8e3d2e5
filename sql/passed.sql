-- What lies between $1 and the last claimed id ($6) and is still pending, but for the open batches ($7): those of them that the claim did not
-- return are held by another session.  Parameters 2 to 5 as in claim.sql.
SELECT m.id::int8, :aggregate_key
FROM :table m
WHERE :claimable AND m.id > $1::int8
  AND ($7::int8[] IS NULL OR m.id NOT IN (SELECT unnest($7::int8[])))
  AND m.id <= $6::int8
ORDER BY m.id
LIMIT $5::int8
