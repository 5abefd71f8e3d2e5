-- The discarded ones instead (sql/dead_discard.sql marks them), as :is_dead.  Parameters as in dead.sql.
m.published_at IS NOT NULL AND m.last_error LIKE 'discarded: %' AND $4::int4 IS NOT NULL
AND :selected
