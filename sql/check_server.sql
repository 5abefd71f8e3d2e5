-- Where this session is: version, address, database, role, whether the server is a standby, whether transactions may write, its clock in microseconds since 1970.
SELECT current_setting('server_version'),
       coalesce(host(inet_server_addr()) || ':' || inet_server_port(), 'a unix socket'),
       quote_ident(current_database()),
       quote_ident(current_user),
       pg_is_in_recovery(),
       current_setting('transaction_read_only') = 'on',
       (extract(epoch FROM clock_timestamp()) * 1000000)::int8
