-- Gives the dead messages among ids $5 new attempts.  last_error stays: it tells the relay that they were dead (sql/claim.sql).
-- $1..$4 as in dead.sql.
UPDATE :table m SET attempts = 0, last_error = coalesce(m.last_error, '')
WHERE m.id = ANY ($5::int8[]) AND :is_dead
