-- How many of the messages a replay is about are pending; of 100,001 at most.  Parameters as in replay_keys.sql.
SELECT count(*)
FROM (
  SELECT
  FROM :table m
  WHERE m.published_at IS NULL AND m.id > $4::int8
    AND :selected
    :range
  LIMIT 100001
) p
