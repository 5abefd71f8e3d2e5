-- Which pending rows above $1 are held by another session?  Asked when a claim came back empty although something is pending.  Locks those that
-- are free (for the rest of the transaction, which ends at once) and returns the others.  Parameters 2 to 5 as in claim.sql, $6 as $7 in passed.sql.
WITH free AS MATERIALIZED (
  SELECT m.id
  FROM :table m
  WHERE :claimable AND m.id > $1::int8
    AND ($6::int8[] IS NULL OR m.id NOT IN (SELECT unnest($6::int8[])))
  ORDER BY m.id
  LIMIT $5::int8
  FOR UPDATE OF m SKIP LOCKED
), pending AS MATERIALIZED (
  SELECT m.id::int8 AS id, :aggregate_key AS key
  FROM :table m
  WHERE :claimable AND m.id > $1::int8
    AND ($6::int8[] IS NULL OR m.id NOT IN (SELECT unnest($6::int8[])))
  ORDER BY m.id
  LIMIT $5::int8
)
SELECT p.id, p.key
FROM pending p
WHERE p.id NOT IN (SELECT f.id FROM free f)
ORDER BY p.id
