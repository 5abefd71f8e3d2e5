-- How many blocks table $1 (an oid) has.
SELECT pg_relation_size($1::oid::regclass) / current_setting('block_size')::int8
