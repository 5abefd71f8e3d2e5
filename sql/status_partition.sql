-- What is pending and what is dead in one partition, of 10,001 pending messages at most; one part of a UNION ALL.  $1 --max-attempts
SELECT count(*), count(*) FILTER (WHERE p.attempts >= $1::int4)
FROM (SELECT coalesce(m.attempts, 0) AS attempts FROM :partition m WHERE m.published_at IS NULL LIMIT 10001) p
