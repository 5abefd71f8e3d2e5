-- Part of sql/claim.sql.  $10 ids of batches that are open, NULL for none
AND ($10::int8[] IS NULL OR m.id NOT IN (SELECT unnest($10::int8[])))
