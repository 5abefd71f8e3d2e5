-- The page's messages lie between these times, so other partitions need not be looked at.  Not for rows without created_at.
AND m.created_at >= (SELECT min(c) FROM unnest($4::timestamptz[]) c)
AND m.created_at <= (SELECT max(c) FROM unnest($4::timestamptz[]) c)
