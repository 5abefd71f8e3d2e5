-- Part of sql/claim.sql, where claim_in_flight.sql is too much: a few ids
AND m.id <> ALL ($10::int8[])
