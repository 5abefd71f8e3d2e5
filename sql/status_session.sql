-- What the session of status has beside session.sql: it changes nothing, waits for no lock for long, and walks the pending index whatever the
-- statistics say.
SELECT set_config('default_transaction_read_only', 'on', false),
       set_config('statement_timeout', '10000', false),
       set_config('lock_timeout', '2000', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('jit', 'off', false)
