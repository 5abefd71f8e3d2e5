-- What the alert's session has beside session.sql: it may idle from one check to the next ($1, milliseconds) and changes nothing.
-- Answers whether table $2 (an oid) is partitioned as `outboxd init` does it, and who we are.
SELECT set_config('idle_session_timeout', $1, false),
       set_config('default_transaction_read_only', 'on', false),
       coalesce(pg_get_partkeydef($2::oid) = 'RANGE (created_at)', false),
       quote_ident(current_user)
