-- Part of sql/claimable.sql.  $3 lanes, NULL for all
AND ($3::int4[] IS NULL OR :lane = ANY ($3::int4[]))
