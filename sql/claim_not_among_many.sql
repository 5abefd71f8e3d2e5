-- Part of sql/claim.sql and claim_simple.sql.  $10 ids of batches that are open
AND m.id NOT IN (SELECT unnest($10::int8[]))
