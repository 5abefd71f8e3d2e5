#!/bin/bash
# What the trigger of `outboxd init --notify` costs writers: transactions a second of one insert each, with and without it.
#
#   DATABASE_URL=... scripts/measure-notify.sh
#
# A connection that may create schemas, to a server that does nothing else; uses schema outboxd_measure.  With and without take turns; CLIENTS
# (numbers of concurrent writers), SECONDS_EACH and ROUNDS change the sizes, PGBENCH and OUTBOXD are the programs.  No relay runs.
set -euo pipefail

clients=${CLIENTS:-1 4 16 64}
seconds=${SECONDS_EACH:-5}
rounds=${ROUNDS:-3}
outboxd=${OUTBOXD:-build/outboxd}
installed=(/usr/lib/postgresql/*/bin/pgbench)
pgbench=${PGBENCH:-$(command -v pgbench || echo "${installed[-1]}")}
url=${DATABASE_URL:-}
sql() { psql -qAtX -v ON_ERROR_STOP=1 -d "$url" "$@"; }
script=$(mktemp)
trap 'rm -f "$script"; sql -c "SET client_min_messages = error" -c "DROP SCHEMA IF EXISTS outboxd_measure CASCADE"' EXIT
cat >"$script" <<'SQL'
INSERT INTO outboxd_measure.o (aggregate_type, aggregate_id, event_type, payload)
  VALUES ('account', (random() * 10000)::int::text, 'money.sent', jsonb_build_object('n', random(), 'note', repeat('x', 200)));
SQL

# rate CLIENTS OPTION...: transactions a second on a fresh table that init made with the options.
rate() {
  local n=$1
  shift
  sql -c 'SET client_min_messages = error' -c 'DROP SCHEMA IF EXISTS outboxd_measure CASCADE' -c 'CREATE SCHEMA outboxd_measure'
  "$outboxd" init --database "$url" --table outboxd_measure.o "$@" >/dev/null
  "$pgbench" -n -M prepared -f "$script" -c "$n" -j 2 -T "$seconds" -d "$url" 2>/dev/null | awk '/^tps/ { printf "%.0f\n", $3 }'
}

printf '%-8s %18s %14s %8s\n' writers 'without trigger' 'with it, 1/s' ratio
for n in $clients; do
  for ((round = 1; round <= rounds; round++)); do
    without=$(rate "$n")
    with=$(rate "$n" --notify)
    awk -v n="$n" -v a="$without" -v b="$with" 'BEGIN { printf "%-8d %18d %14d %8.2f\n", n, a, b, b / a }'
  done
done
