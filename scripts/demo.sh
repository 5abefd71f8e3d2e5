#!/bin/bash
# make demo: outboxd at work in a minute, on a PostgreSQL and a Redis of its own that are gone afterwards.
#
# Environment: OUTBOXD_BIN, BUILD   what make built; without them it is built here first
#              TEST_PG_BIN          directory of PostgreSQL's programs; the newest one found otherwise
#              TEST_REDIS_SERVER    redis-server, or Valkey's; the one in PATH otherwise
#              DEMO_SECONDS, DEMO_CLIENTS, DEMO_ACCOUNTS   20, 16, 5000
#              KEEP=1               leave the directory with the logs
# Exit status: 0 when every check holds.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${DEMO_SECONDS:-20}
clients=${DEMO_CLIENTS:-16}
accounts=${DEMO_ACCOUNTS:-5000}
stream='outbox:{%l}:%t:%i'

# ---- words on the screen

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' green='' red='' plain=''
fi

step_n=0
step() {
  step_n=$((step_n + 1))
  printf '\n%s%d  %s%s\n' "$bold" "$step_n" "$1" "$plain"
}
say() { printf '   %s\n' "$1"; }
quiet() { printf '   %s%s%s\n' "$dim" "$1" "$plain"; }

# 1234567 -> 1,234,567
grouped() { sed -E ':a; s/^(-?[0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$1"; }
# cents -> 1,234.56
money() {
  local sign='' cents=$1
  if [ "$cents" -lt 0 ]; then sign='-' cents=$((-cents)); fi
  printf '%s%s.%02d' "$sign" "$(grouped $((cents / 100)))" $((cents % 100))
}

failures_n=0
# check STATUS TEXT FIGURES
check() {
  if [ "$1" -eq 0 ]; then
    printf '   %s[ok]%s %-46s %s%s%s\n' "$green" "$plain" "$2" "$dim" "$3" "$plain"
  else
    failures_n=$((failures_n + 1))
    printf '   %s[WRONG]%s %-43s %s\n' "$red" "$plain" "$2" "$3"
  fi
}
# holds EXPRESSION...: 0 or 1, for check
holds() { if [ "$@" ]; then echo 0; else echo 1; fi; }

# ---- cleaning up: only what was started here, by its own pid

dir='' pg_dir='' relay_pid='' bench_pid='' redis_pid='' as_postgres=()
cleanup() {
  local status=$?
  trap - EXIT INT TERM HUP
  [ -z "$bench_pid" ] || kill "$bench_pid" 2>/dev/null || true
  [ -z "$relay_pid" ] || kill -KILL "$relay_pid" 2>/dev/null || true
  [ -z "$redis_pid" ] || kill "$redis_pid" 2>/dev/null || true
  if [ -n "$pg_dir" ] && [ -e "$pg_dir/data/postmaster.pid" ]; then
    "${as_postgres[@]}" "$pg_bin/pg_ctl" -D "$pg_dir/data" -m immediate -w stop >/dev/null 2>&1 || true
  fi
  wait 2>/dev/null || true
  if [ "$status" -ne 0 ] && [ -n "$dir" ] && [ -s "$dir/relay.log" ]; then
    printf '\nThe last the relay logged:\n' >&2
    tail -n 5 "$dir/relay.log" >&2
  fi
  if [ -n "$dir" ]; then
    if [ "${KEEP:-0}" = 1 ]; then echo "kept: $dir" >&2; else rm -rf "$dir"; fi
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

die() {
  printf '%sdemo: %s%s\n' "$red" "$1" "$plain" >&2
  exit 1
}

# ---- what is needed

if [ -z "${OUTBOXD_BIN:-}" ]; then
  scripts/install-deps.sh test
  make -s DEPS=no build/outboxd build/tests/tools/outbox-check
fi
outboxd=${OUTBOXD_BIN:-$PWD/build/outboxd}
checker=${BUILD:-build}/tests/tools/outbox-check
for program in "$outboxd" "$checker"; do
  [ -x "$program" ] || die "$program is not built yet: run make demo"
done

pg_bin=${TEST_PG_BIN:-}
if [ -z "$pg_bin" ]; then
  for candidate in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V) "$(pg_config --bindir 2>/dev/null || true)"; do
    if [ -x "$candidate/initdb" ] && [ -x "$candidate/pgbench" ]; then pg_bin=$candidate; fi
  done
fi
[ -n "$pg_bin" ] || die "found no PostgreSQL server with pgbench; scripts/install-deps.sh test installs it"
redis_server=${TEST_REDIS_SERVER:-redis-server}
for program in "$redis_server" redis-cli; do
  command -v "$program" >/dev/null || die "found no $program; scripts/install-deps.sh test installs it"
done

dir=$(mktemp -d "${TMPDIR:-/tmp}/outboxd-demo.XXXXXX")
chmod 711 "$dir"
pg_dir=$dir/pg
mkdir "$pg_dir"
# PostgreSQL refuses to run as root.
if [ "$(id -u)" -eq 0 ]; then
  chown postgres "$pg_dir"
  as_postgres=(runuser -u postgres --)
fi

# ---- the story

printf '%soutboxd%s moves the events that PostgreSQL has committed into Redis Streams.\n' "$bold" "$plain"
printf 'Every one, once, in order. Here it has to do so while it is being killed.\n'

step "A PostgreSQL and a Redis of our own, gone again afterwards"
(
  cd "$pg_dir"
  "${as_postgres[@]}" "$pg_bin/initdb" -D "$pg_dir/data" -U postgres -A trust --no-locale -E UTF8 -N >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
  "${as_postgres[@]}" "$pg_bin/pg_ctl" -D "$pg_dir/data" -w -l "$pg_dir/log" -o "-c listen_addresses='' \
    -c unix_socket_directories='$pg_dir' -c max_connections=$((clients + 40)) -c shared_buffers=128MB -c max_wal_size=2GB" \
    start >/dev/null || { cat "$pg_dir/log" >&2; exit 1; }
) || die "PostgreSQL does not start"
export PGHOST=$pg_dir PGPORT=5432 PGUSER=postgres PGDATABASE=postgres PGOPTIONS='-c client_min_messages=warning'
unset PGPASSWORD PGSERVICE PGSSLMODE DATABASE_URL REDIS_URL
psql() { "$pg_bin/psql" -qAtX -v ON_ERROR_STOP=1 "$@"; }

# No TCP port at all: a socket in the directory.  Every write is on disk before it is acknowledged.
"$redis_server" --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --appendonly yes --appendfsync always --save '' \
  --daemonize no --logfile "$dir/redis.log" >/dev/null &
redis_pid=$!
redis() { redis-cli -s "$dir/redis.sock" "$@"; }
for ((i = 0; i < 100; i++)); do
  if [ "$(redis ping 2>/dev/null || true)" = PONG ]; then break; fi
  sleep 0.05
done
[ "$(redis ping 2>/dev/null || true)" = PONG ] || die "Redis does not start: $(tail -n 1 "$dir/redis.log")"
quiet "PostgreSQL $(psql -c 'SHOW server_version' | cut -d' ' -f1), $(redis info server | awk -F '[:\r]' '
  $1 == "redis_version" { name = "Redis " $2 } $1 == "valkey_version" { valkey = "Valkey " $2 }
  END { print valkey == "" ? name : valkey }'); both sync what they acknowledge to disk"

step "outboxd init makes the outbox table"
export OUTBOXD_DATABASE='' OUTBOXD_REDIS="unix://$dir/redis.sock"
OUTBOXD_REDIS='' "$outboxd" init | sed -E 's/ \([a-z].*//; s/\.\. outbox_messages_/.. /; s/^/   /'
psql -v accounts="$accounts" -f scripts/demo/schema.sql

step "$clients clients pay one another, $(grouped "$accounts") accounts"
say "Each payment is one transaction: two balances, a payment, and two rows in"
say "the outbox table. One transaction in ten is rolled back at its end."
start_relay() {
  "$outboxd" run --stream "$stream" --claimers 4 --publishers 3 --session-timeout 10s 2>>"$dir/relay.log" &
  relay_pid=$!
}
start_relay
say "outboxd run relays meanwhile: 4 claimers, 3 publishers, a stream an account."
"$pg_bin/pgbench" -n -M prepared -c "$clients" -j 2 -T "$seconds" -D accounts="$accounts" -f scripts/demo/pay.sql \
  >"$dir/bench.log" 2>&1 &
bench_pid=$!

xadds_n() { redis info commandstats | sed -n 's/^cmdstat_xadd:calls=\([0-9]*\).*/\1/p' | grep . || echo 0; }
pending_n() { psql -c 'SELECT count(*) FROM outbox_messages WHERE published_at IS NULL'; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

printf '\n   %s%8s  %14s  %12s  %12s%s\n' "$dim" second 'events in Redis' 'a second' 'waiting' "$plain"
began_ms=$(now_ms) last_ms=$(now_ms) last_n=0 best=0
row() {
  local now n waiting rate
  now=$(now_ms) n=$(xadds_n) waiting=$(pending_n)
  rate=$((1000 * (n - last_n) / (now - last_ms + 1)))
  if [ "$rate" -gt "$best" ]; then best=$rate; fi
  printf '   %8d  %15s  %12s  %12s%s\n' $(((now - began_ms + 500) / 1000)) "$(grouped "$n")" "$(grouped "$rate")" \
    "$(grouped "$waiting")" "${1:+  $1}"
  last_ms=$now last_n=$n
}
alive() { kill -0 "$1" 2>/dev/null; }
is_killed=0 is_back=0 killed_when='never: it needs more DEMO_SECONDS'
while alive "$bench_pid"; do
  sleep 1
  elapsed=$((($(now_ms) - began_ms) / 1000))
  if [ "$is_killed" -eq 0 ] && [ "$elapsed" -ge $((seconds / 2)) ] && alive "$bench_pid"; then
    kill -KILL "$relay_pid"
    wait "$relay_pid" 2>/dev/null || true
    is_killed=1 killed_when="in second $elapsed of $seconds"
    row "${red}<- kill -9${plain}"
  elif [ "$is_killed" -eq 1 ] && [ "$is_back" -eq 0 ] && [ "$elapsed" -ge $((seconds / 2 + 3)) ]; then
    row "${green}<- started again${plain}"
    start_relay
    is_back=1
  elif [ $((elapsed % 2)) -eq 0 ]; then
    row
  fi
  alive "$relay_pid" || [ "$is_killed" -ne "$is_back" ] || die "the relay has ended by itself"
done
wait "$bench_pid" || { cat "$dir/bench.log" >&2; die "pgbench failed"; }
bench_pid=''
if [ "$is_killed" -eq 1 ] && [ "$is_back" -eq 0 ]; then
  row "${green}<- started again${plain}"
  start_relay
fi
drain_ms=$(now_ms)
while [ "$(pending_n)" -ne 0 ]; do
  [ $(($(now_ms) - drain_ms)) -lt 60000 ] || die "$(pending_n) messages are still waiting a minute after the last payment"
  alive "$relay_pid" || die "the relay has ended by itself"
  sleep 0.05
done
drain_ms=$(($(now_ms) - drain_ms))
row "${dim}all relayed${plain}"
kill -TERM "$relay_pid"
relay_status=0
wait "$relay_pid" || relay_status=$?
relay_pid=''

# ---- the proof

step "Nothing lost, nothing twice, nothing out of order?"
checked=0
report=$("$checker" --database '' --redis "unix://$dir/redis.sock" --stream "$stream" --json) || checked=$?
[ "$checked" -le 1 ] || die "the checker could not do its work"
found() { grep -oE "\"$1\":[0-9]+" <<<"$report" | head -n 1 | cut -d: -f2; }
messages=$(found messages) entries=$(found entries)
redis --raw EVAL "$(cat scripts/demo/streams.lua)" 0 'outbox:{*}:account:*' >"$dir/streams.txt"
declare -A told=()
for pair in $(psql -f scripts/demo/replay.sql <"$dir/streams.txt"); do told[${pair%%=*}]=${pair#*=}; done

check "$(holds "$is_killed" -eq 1)" 'the relay was killed between two payments' "$killed_when"
check "$(holds "$messages" -gt 0 -a "$messages" -eq "$entries" -a "$(found lost)" -eq 0 -a "$(found pending)" -eq 0)" \
  'every committed event is in Redis' "$(grouped "$entries") of $(grouped "$messages")"
check "$(holds "$(found duplicate)" -eq 0)" 'each of them once' "$(found duplicate) duplicates"
check "$(holds "$(found phantom)" -eq 0 -a "${told[phantom_payments]}" -eq 0 -a "${told[rolled_back_payments]}" -gt 0)" \
  'none of a rolled-back payment' "$(grouped "${told[rolled_back_payments]}") were rolled back"
check "$(holds "$(found out_of_order)" -eq 0 -a "${told[out_of_order]}" -eq 0)" \
  'in order within each account' "$(grouped "${told[accounts]}") accounts"
check "$(holds $(($(found wrong_fields) + $(found wrong_stream))) -eq 0)" \
  'every field as PostgreSQL has it' "$(found wrong_fields) differ"
check "$(holds "${told[wrong_balances]}" -eq 0)" 'replayed from Redis alone, balances agree' "${told[wrong_balances]} differ"
check "$relay_status" 'the relay stopped cleanly when asked' "exit status $relay_status"
if [ "$checked" -ne 0 ]; then
  failures_n=$((failures_n + (failures_n == 0)))
  "$checker" --database '' --redis "unix://$dir/redis.sock" --stream "$stream" || true
fi

tps=$(sed -n 's/^tps = \([0-9]*\).*/\1/p' "$dir/bench.log")
printf '\n'
say "Written: $(grouped "${told[payments]}") payments, $(grouped "$tps") transactions a second."
say "Relayed: $(grouped "$messages") events; up to $(grouped "$best") a second when catching up;"
say "done $drain_ms ms after the last payment."

# ---- a look at it

story=${told[story]}
key=$(redis --scan --pattern "outbox:{*}:account:$story" | head -n 1)
step "What a consumer reads: XRANGE $key - + COUNT 1"
redis --raw XRANGE "$key" - + COUNT 1 | cut -c1-76 | awk -v d="$dim" -v p="$plain" '
  NR == 1 { print "   " d "id" p "              " $0; next }
  NR % 2 == 0 { name = $0; next }
  { printf "   %s%-15s%s %s\n", d, name, p, $0 }'

step "The whole story of account $story, as Redis tells it"
while IFS=$'\t' read -r n event change balance; do
  printf '   %3d  %-16s %14s   balance %14s\n' "$n" "$event" "$(money "$change")" "$(money "$balance")"
  last_balance=$balance
done < <(redis --raw XRANGE "$key" - + | awk '
  function number(name) { match($0, "\"" name "\": -?[0-9]+"); return substr($0, RSTART + length(name) + 4, RLENGTH - length(name) - 4) }
  previous == "event_type" { event = $0 }
  previous == "payload" { print number("n") "\t" event "\t" number("change") "\t" number("balance") }
  { previous = $0 }')
balance=$(psql -c "SELECT balance FROM accounts WHERE id = $story")
check "$(holds "${last_balance:-none}" = "$balance")" 'the same in PostgreSQL' "$(money "$balance")"

if [ "$failures_n" -ne 0 ]; then
  printf '\n%sChecks that do not hold: %d%s\n' "$red" "$failures_n" "$plain"
  exit 1
fi
printf '\n%sAll checks hold.%s Next: README.md, "With your own database".\n' "$green" "$plain"
