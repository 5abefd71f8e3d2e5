-- How far server process $1 is with the index it builds: the phase, and what of it is done and there is to do.  Some phases count neither
-- blocks nor rows, but the sessions they wait for.
SELECT p.phase,
       CASE WHEN p.lockers_total > 0 AND p.phase LIKE 'waiting%' THEN p.lockers_done WHEN p.blocks_total > 0 THEN p.blocks_done
            ELSE p.tuples_done END,
       CASE WHEN p.lockers_total > 0 AND p.phase LIKE 'waiting%' THEN p.lockers_total WHEN p.blocks_total > 0 THEN p.blocks_total
            ELSE p.tuples_total END
FROM pg_stat_progress_create_index p
WHERE p.pid = $1::int4
