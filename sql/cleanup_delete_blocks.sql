-- Deletes what is older than $3 (microseconds since 1970) from the blocks between $1 and $2 (tids): for tables without an index that leads there.
DELETE FROM :table m
WHERE m.ctid >= $1::tid AND m.ctid < $2::tid AND :age < timestamptz 'epoch' + $3::int8 * interval '1 microsecond' AND :condition
