BEGIN
  IF pg_catalog.current_setting('server_version_num')::int >= 180000 THEN
    RETURN pg_catalog.uuidv7();
  END IF;
  -- RFC 9562, method 3: 48 bits of milliseconds, the version, 12 bits of 1/4096 ms, then gen_random_uuid()'s own variant and 62 bits.  One look at the
  -- clock, for two would fall on both sides of a millisecond.
  RETURN (pg_catalog.overlay(pg_catalog.lpad(pg_catalog.to_hex(pg_catalog.trunc(
            extract(epoch FROM pg_catalog.clock_timestamp()) * 4096000)::bigint), 15, '0'), '7', 13, 0)
          || pg_catalog.right(pg_catalog.gen_random_uuid()::text, 17))::uuid;
END
