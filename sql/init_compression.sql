-- Whether this server was built with lz4, which compresses a large payload in half the time that its own method takes.
SELECT coalesce((SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'default_toast_compression'), false)
