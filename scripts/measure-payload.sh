#!/bin/bash
# What each type of the column payload costs, and each compression: writes the same events into tables that differ in nothing else, and reads them.
#
#   DATABASE_URL=... scripts/measure-payload.sh [EVENTS.jsonl]     a superuser's connection to a server that does nothing else; uses schema outboxd_measure
#
# EVENTS.jsonl has an event a line, with its payload under "payload"; without it payloads are made up, of BYTES bytes (8000).  MESSAGES (15000) are written by
# INSERT ... SELECT, and read by COPY ... TO '/dev/null' BINARY, which prints each payload as a claim does and sends it nowhere; the better of two rounds.
# The figures in docs/schema.md come from here.
set -euo pipefail

messages=${MESSAGES:-15000}
bytes=${BYTES:-8000}
export PGOPTIONS='-c client_min_messages=error'
sql() { psql -qAtX -v ON_ERROR_STOP=1 -d "${DATABASE_URL:-}" "$@"; }
trap 'sql -c "DROP SCHEMA IF EXISTS outboxd_measure CASCADE"' EXIT

# us_for_each STATEMENT: microseconds a message that it takes
us_for_each() {
  printf '\\timing on\n%s;\n' "$1" | sql | awk -v n="$messages" '/^Time:/ { printf "%.0f", $2 * 1000 / n }'
}

sql <<SQL
DROP SCHEMA IF EXISTS outboxd_measure CASCADE;
CREATE SCHEMA outboxd_measure;
CREATE UNLOGGED TABLE outboxd_measure.lines (n int GENERATED ALWAYS AS IDENTITY, line text);
CREATE UNLOGGED TABLE outboxd_measure.events (payload text);
SQL
if [ $# -gt 0 ]; then
  sql -c "COPY outboxd_measure.lines (line) FROM STDIN WITH (FORMAT csv, QUOTE e'\\x01', DELIMITER e'\\x02')" <"$1"
  payload="line::json->>'payload'"
else
  sql -c "INSERT INTO outboxd_measure.lines (line) SELECT '' FROM generate_series(1, 100)"
  payload="(SELECT json_agg(json_build_object('n', i, 'name', md5(i::text || n), 'amount', i * 17 % 1000, 'is_open', i % 2 = 0)) FROM generate_series(1, $bytes / 85) i)"
fi
sql <<SQL
INSERT INTO outboxd_measure.events
SELECT p.payload FROM generate_series(1, $messages) g
JOIN (SELECT n, count(*) OVER () AS all_n, $payload AS payload FROM outboxd_measure.lines) p ON p.n = (g - 1) % p.all_n + 1
ORDER BY g;
SQL
echo "PostgreSQL $(sql -c 'SHOW server_version'), $messages messages, $(sql -c 'SELECT avg(octet_length(payload))::int FROM outboxd_measure.events') bytes on average; us a message"
printf '%-12s %8s %8s %14s\n' '' written read 'bytes stored'
for column in 'jsonb pglz' 'jsonb lz4' 'json pglz' 'json lz4' 'text lz4'; do
  read -r type compression <<<"$column"
  written=
  read=
  # || '': a text taken over as it is would stay compressed as it was.
  for _ in 1 2; do
    sql -c "DROP TABLE IF EXISTS outboxd_measure.o" -c "CREATE TABLE outboxd_measure.o (payload $type COMPRESSION $compression)" -c CHECKPOINT
    us=$(us_for_each "INSERT INTO outboxd_measure.o SELECT (payload || '')::$type FROM outboxd_measure.events")
    [ -n "$written" ] && [ "$written" -le "$us" ] || written=$us
    us=$(us_for_each "COPY (SELECT payload FROM outboxd_measure.o) TO '/dev/null' BINARY")
    [ -n "$read" ] && [ "$read" -le "$us" ] || read=$us
  done
  printf '%-12s %8s %8s %14s\n' "$column" "$written" "$read" "$(sql -c "SELECT pg_total_relation_size('outboxd_measure.o') / $messages")"
done
