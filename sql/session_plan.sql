-- Pins the plans of the relay's own statements: whatever the statistics say at the moment, the claim walks the pending index in id
-- order.  A plan made once from stale figures must not become a table scan.
SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
       set_config('enable_seqscan', 'off', false),
       set_config('enable_bitmapscan', 'off', false),
       set_config('enable_sort', 'off', false),
       set_config('jit', 'off', false),
       set_config('max_parallel_workers_per_gather', '0', false)
