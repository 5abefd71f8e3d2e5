-- Is anything pending above $1 that may be claimed?  The cheap question of an idle poll.  Parameters 2 to 4 as in claim.sql.
SELECT 1
FROM :table m
WHERE :claimable AND m.id > $1::int8
ORDER BY m.id
LIMIT 1
