-- The same as sql/claim_not_among_many.sql for a few ids, compared one by one
AND m.id <> ALL ($10::int8[])
