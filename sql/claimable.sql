-- Which rows m a claim may take: pending, not dead; in its lanes and of no aggregate that is held back, where these are asked for
-- (sql/claimable_lanes.sql, claimable_held_back.sql).  One condition for every statement that looks at them, as :claimable.  $2 --max-attempts
m.published_at IS NULL AND :attempts < $2::int4
:in_lanes
:not_held_back
