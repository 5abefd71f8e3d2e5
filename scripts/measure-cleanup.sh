#!/bin/bash
# How much slower a relay drains a plain table while a million old rows are deleted from it.
#
#   DATABASE_URL=... REDIS_URL=... scripts/measure-cleanup.sh
#
# A connection that may create schemas, to a server that does nothing else, and a Redis that may be filled; uses schema outboxd_measure and
# streams measure:*.  Each round drains the same messages once with --no-cleanup and once beside a clean-up that outlasts the drain.
# OLD, MESSAGES and ROUNDS change the sizes; OUTBOXD is the relay.
set -euo pipefail

old=${OLD:-1000000}
messages=${MESSAGES:-600000}
rounds=${ROUNDS:-3}
outboxd=${OUTBOXD:-build/outboxd}
sql() { psql -qAtX -v ON_ERROR_STOP=1 -d "${DATABASE_URL:-}" "$@"; }
log=$(mktemp)
trap 'rm -f "$log"; sql -c "SET client_min_messages = error" -c "DROP SCHEMA IF EXISTS outboxd_measure CASCADE"' EXIT

# fill: a plain table of old published rows, then pending ones.
fill() {
  sql <<SQL
SET client_min_messages = error;
DROP SCHEMA IF EXISTS outboxd_measure CASCADE;
CREATE SCHEMA outboxd_measure;
CREATE TABLE outboxd_measure.o (
  id bigserial PRIMARY KEY, message_id uuid NOT NULL UNIQUE DEFAULT gen_random_uuid(), aggregate_type varchar(255) NOT NULL,
  aggregate_id varchar(255) NOT NULL, event_type varchar(255) NOT NULL, payload jsonb NOT NULL, attempts smallint NOT NULL DEFAULT 0,
  last_error text, created_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz);
CREATE INDEX ON outboxd_measure.o (id) WHERE published_at IS NULL;
INSERT INTO outboxd_measure.o (aggregate_type, aggregate_id, event_type, payload, created_at, published_at)
  SELECT 'account', (i * 7919 % 10000)::text, 'money.sent', jsonb_build_object('n', i, 'note', repeat(md5(i::text), 7)),
         now() - interval '40 days', now() - interval '40 days' FROM generate_series(1::bigint, $old) i;
INSERT INTO outboxd_measure.o (aggregate_type, aggregate_id, event_type, payload)
  SELECT 'account', (i * 7919 % 10000)::text, 'money.sent', jsonb_build_object('n', i, 'note', repeat(md5(i::text), 7))
  FROM generate_series(1::bigint, $messages) i;
SQL
  sql -c 'VACUUM ANALYZE outboxd_measure.o' -c 'CHECKPOINT'
}

# drain OPTION...: prints messages a second, the first two seconds left out, and how many old rows are left.
drain() {
  fill
  "$outboxd" run --database "${DATABASE_URL:-}" --redis "${REDIS_URL:-}" --table outboxd_measure.o --stream 'measure:{%l}' \
    --until-empty "$@" 2>"$log" || {
    cat "$log" >&2
    return 1
  }
  sql -F ' ' -c "SELECT round(count(*) / extract(epoch FROM max(d.published_at) - min(d.published_at))),
      (SELECT count(*) FROM outboxd_measure.o WHERE created_at < now() - interval '1 day')
    FROM (SELECT published_at, min(published_at) OVER () AS began FROM outboxd_measure.o WHERE created_at > now() - interval '1 day') d
    WHERE d.published_at > d.began + interval '2 seconds'"
}

printf '%-6s %14s %14s %8s %10s\n' round 'without, 1/s' 'beside it, 1/s' ratio 'rows left'
for ((round = 1; round <= rounds; round++)); do
  read -r without _ < <(drain --no-cleanup)
  read -r beside left < <(drain --retention 15d)
  awk -v n="$round" -v a="$without" -v b="$beside" -v l="$left" \
    'BEGIN { printf "%-6d %14d %14d %8.2f %10d%s\n", n, a, b, b / a, l, l == 0 ? "  (the clean-up was over first: more MESSAGES)" : "" }'
done
