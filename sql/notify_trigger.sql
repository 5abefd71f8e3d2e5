-- Does table $1 (an oid) have the trigger of `outboxd init --notify`?
SELECT EXISTS (SELECT 1
               FROM pg_catalog.pg_trigger t
               WHERE t.tgrelid = $1::oid AND t.tgname = 'outboxd_notify' AND NOT t.tgisinternal AND t.tgenabled <> 'D')
