-- For a detach, which waits while it holds nobody up: cleanup_watch.sql ends it when it does.  $1: at most so many milliseconds.
SELECT set_config('lock_timeout', '0', false), set_config('statement_timeout', $1, false)
