-- What replay's session has beside session.sql: its one long statement may take as long as it takes, and with --rate the session may be idle for
-- long.  A client that has gone is noticed where the server can.  Answers whether table $1 (an oid) has headers.
SELECT set_config('statement_timeout', '0', false),
       set_config('idle_session_timeout', '0', false),
       set_config('jit', 'off', false),
       CASE WHEN version() ~ 'linux' THEN set_config('client_connection_check_interval', '5s', false) END,
       EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = $1::oid AND a.attname = 'headers' AND NOT a.attisdropped)
