-- For replay_page.sql: go to the places, never search.
SELECT set_config('enable_seqscan', 'off', false),
       set_config('enable_hashjoin', 'off', false),
       set_config('enable_mergejoin', 'off', false),
       set_config('enable_indexscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('max_parallel_workers_per_gather', '0', false)
