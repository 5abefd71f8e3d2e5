-- How far the next transaction reaches: the last of the first $6 dead messages above id $5, NULL when there is none.  $1..$4 as in dead.sql.
SELECT max(p.id)::int8
FROM (SELECT m.id FROM :table m WHERE :is_dead AND m.id > $5::int8 ORDER BY m.id LIMIT $6::int4) p
