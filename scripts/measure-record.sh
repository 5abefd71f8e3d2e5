#!/bin/bash
# What outbox_record costs: the same transactions, one event each, by a plain INSERT and by the function, with pgbench.
#
#   DATABASE_URL=... scripts/measure-record.sh      a superuser's connection to a server that does nothing else; uses schema outboxd_measure
#
# Environment: OUTBOXD  the program (build/outboxd)   SECONDS_EACH  of each run (10)   ROUNDS  of both (3)   PGBENCH  the program (pgbench)
#
# One client, so that what is measured is the work for one event; synchronous_commit off, so that it is not the disk.  Each round runs all forms one after
# the other, in turn.
set -euo pipefail
cd "$(dirname "$0")/.."

outboxd=${OUTBOXD:-build/outboxd}
seconds=${SECONDS_EACH:-10}
rounds=${ROUNDS:-3}
pgbench=${PGBENCH:-pgbench}
sql() { psql -qAtX -v ON_ERROR_STOP=1 -d "${DATABASE_URL:-}" "$@"; }
dir=$(mktemp -d)
trap 'rm -rf "$dir"; sql -c "SET client_min_messages = error" -c "DROP SCHEMA IF EXISTS outboxd_measure CASCADE"' EXIT

sql -c 'SET client_min_messages = error' -c 'DROP SCHEMA IF EXISTS outboxd_measure CASCADE' -c 'CREATE SCHEMA outboxd_measure'
"$outboxd" init --table outboxd_measure.outbox_messages ${DATABASE_URL:+--database "$DATABASE_URL"} >/dev/null

payload="'{\"amount\": 10, \"note\": \"$(printf 'x%.0s' {1..170})\"}'"
cat >"$dir/insert" <<SQL
\\set id random(1, 10000)
BEGIN;
INSERT INTO outboxd_measure.outbox_messages (aggregate_type, aggregate_id, event_type, payload) VALUES ('account', :id::text, 'money.sent', $payload) RETURNING message_id;
COMMIT;
SQL
sed "s/(aggregate_type/(message_id, aggregate_type/;s/VALUES (/VALUES (outboxd_measure.outbox_uuid_v7(), /" "$dir/insert" >"$dir/insert with uuid v7"
cat >"$dir/outbox_record" <<SQL
\\set id random(1, 10000)
BEGIN;
SELECT outboxd_measure.outbox_record('account', :id::text, 'money.sent', $payload);
COMMIT;
SQL
cat >"$dir/empty" <<SQL
\\set id random(1, 10000)
BEGIN;
SELECT :id::text;
COMMIT;
SQL

echo "PostgreSQL $(sql -c 'SHOW server_version'), one client, $seconds s each, microseconds a transaction"
printf '%-8s %-22s %10s\n' round form us
for round in $(seq "$rounds"); do
  for form in empty insert 'insert with uuid v7' outbox_record; do
    sql -c 'TRUNCATE outboxd_measure.outbox_messages' -c CHECKPOINT
    latency=$(PGOPTIONS='-c synchronous_commit=off' "$pgbench" -n -M prepared -c 1 -T "$seconds" -f "$dir/$form" "${DATABASE_URL:-}" |
      sed -n 's/^latency average = \([0-9.]*\) ms/\1/p')
    awk -v r="$round" -v f="$form" -v l="$latency" 'BEGIN { printf "%-8s %-22s %10.1f\n", r, f, l * 1000 }'
  done
done
