-- Which rows m a claim may take: pending, not dead, in its lanes, of no aggregate that is held back.  One condition for every statement that
-- looks at them, as :claimable.  $2 --max-attempts, $3 lanes (NULL: all), $4 aggregate keys held back (NULL: none)
m.published_at IS NULL AND :attempts < $2::int4
  AND ($3::int4[] IS NULL OR :lane = ANY ($3::int4[]))
  AND ($4::int8[] IS NULL OR :aggregate_key NOT IN (SELECT unnest($4::int8[])))
