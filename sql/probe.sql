-- Is anything pending above $1 that may be claimed?  The cheap question of an idle poll.  Parameters 2 to 4 as in claim.sql.
SELECT 1
FROM :table m
WHERE m.published_at IS NULL AND m.id > $1::int8 AND :attempts < $2::int4
  AND ($3::int4[] IS NULL OR :lane = ANY ($3::int4[]))
  AND ($4::int8[] IS NULL OR :aggregate_key NOT IN (SELECT unnest($4::int8[])))
ORDER BY m.id
LIMIT 1
