-- Part of sql/claimable.sql.  $4 aggregate keys held back, NULL for none
AND ($4::int8[] IS NULL OR :aggregate_key NOT IN (SELECT unnest($4::int8[])))
