-- The cleanup's session, on top of session.sql: no lock is waited for longer than others may wait behind it, and looks go by the index.
SELECT set_config('lock_timeout', '500ms', false),
       set_config('statement_timeout', $1, false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('jit', 'off', false),
       set_config('max_parallel_workers_per_gather', '0', false)
