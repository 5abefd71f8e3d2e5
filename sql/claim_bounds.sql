-- Part of sql/claim.sql and claim_simple.sql: the id to start from, and what the next claims need to know of this one's snapshot.
SELECT least($1::int8, (SELECT min(o.low)
                        FROM unnest($8::xid8[], $9::int8[]) AS o (xid, low)
                        WHERE pg_visible_in_snapshot(o.xid, pg_current_snapshot()))) AS start_id,
       pg_current_snapshot()::text || ':' || pg_current_xact_id()::text AS snapshot
