-- The settings of every session of the relay, and the server process that answers: a proxy that pools transactions would show another
-- one than the connection was given.  $1: --session-timeout in milliseconds.
SELECT pg_backend_pid(),
       set_config('TimeZone', 'UTC', false),
       set_config('DateStyle', 'ISO', false),
       set_config('idle_session_timeout', $1, false),
       set_config('idle_in_transaction_session_timeout', $1, false),
       set_config('statement_timeout', $1, false),
       set_config('lock_timeout', ($1::bigint / 2)::text, false),
       set_config('tcp_user_timeout', $1, false),
       set_config('default_transaction_isolation', 'read committed', false),
       set_config('extra_float_digits', '1', false),
       set_config('bytea_output', 'hex', false),
       set_config('client_min_messages', 'warning', false)
