-- What a partition holds that is neither published nor may go: pending, dead ($1: --max-attempts), since when, and how large it ($2, its oid) is.
-- Counted as far as 100,000.  By the pending index.
SELECT count(*) FILTER (WHERE coalesce(s.attempts, 0) < $1::int4),
       count(*) FILTER (WHERE coalesce(s.attempts, 0) >= $1::int4),
       coalesce(extract(epoch FROM clock_timestamp() - min(s.created_at)::timestamptz), 0)::float8,
       pg_table_size($2::oid)
FROM (SELECT m.attempts, m.created_at FROM ONLY :partition m WHERE m.published_at IS NULL LIMIT 100000) s
