-- Which rows m a command is about, as :selected.  $1 ids, $2 aggregates as "type:id", $3 event types; NULL for all.
-- The aggregate is compared as one text, for either part may hold colons ("Shop::Order").
($1::int8[] IS NULL OR m.id = ANY ($1::int8[]))
AND ($2::text[] IS NULL OR m.aggregate_type::text || ':' || m.aggregate_id::text = ANY ($2::text[]))
AND ($3::text[] IS NULL OR m.event_type::text = ANY ($3::text[]))
