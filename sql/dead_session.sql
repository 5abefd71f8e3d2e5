-- What the session of dead, retry and discard has beside session.sql: the pending index is walked, whatever the statistics say.  Answers what
-- last_error takes (varchar(n): n + 4, else -1) and whether table $1 (an oid) has an index on id of all its rows.
SELECT set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('jit', 'off', false),
       set_config('statement_timeout', '600000', false),
       (SELECT a.atttypmod FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = 'last_error' AND NOT a.attisdropped),
       EXISTS (
         SELECT FROM pg_index i JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
         WHERE i.indrelid = $1::oid AND i.indisvalid AND i.indpred IS NULL AND a.attname = 'id'
       )
