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

show=demo told_logs=(relay)
# shellcheck source=scripts/demo-common.sh
. scripts/demo-common.sh

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
find_servers

# ---- the story

printf '%soutboxd%s moves the events that PostgreSQL has committed into Redis Streams.\n' "$bold" "$plain"
printf 'Every one, once, in order. Here it has to do so while it is being killed.\n'

step "A PostgreSQL and a Redis of our own, gone again afterwards"
make_postgres
start_postgres $((clients + 40))
start_redis
quiet "$(servers); both sync what they acknowledge to disk"

step "outboxd init makes the outbox table"
export OUTBOXD_DATABASE='' OUTBOXD_REDIS="unix://$dir/redis.sock"
OUTBOXD_REDIS='' "$outboxd" init | sed -E 's/ \([a-z].*//; s/\.\. outbox_messages_/.. /; s/^/   /'
psql -v accounts="$accounts" -f scripts/demo/schema.sql

step "$clients clients pay one another, $(grouped "$accounts") accounts"
say "Each payment is one transaction: two balances, a payment, and two rows in"
say "the outbox table. One transaction in ten is rolled back at its end."
start_relay() {
  run relay "$outboxd" run --stream "$stream" --claimers 4 --publishers 3 --session-timeout 10s
}
start_relay
say "outboxd run relays meanwhile: 4 claimers, 3 publishers, a stream an account."
run bench "$pg_bin/pgbench" -n -M prepared -c "$clients" -j 2 -T "$seconds" -D accounts="$accounts" -f scripts/demo/pay.sql

xadds_n() { redis info commandstats | sed -n 's/^cmdstat_xadd:calls=\([0-9]*\).*/\1/p' | grep . || echo 0; }
pending_n() { psql -c 'SELECT count(*) FROM outbox_messages WHERE published_at IS NULL'; }

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
is_killed=0 is_back=0 killed_when='never: it needs more DEMO_SECONDS'
while is_running bench; do
  sleep 1
  elapsed=$((($(now_ms) - began_ms) / 1000))
  if [ "$is_killed" -eq 0 ] && [ "$elapsed" -ge $((seconds / 2)) ] && is_running bench; then
    end relay KILL || true
    is_killed=1 killed_when="in second $elapsed of $seconds"
    row "${red}<- kill -9${plain}"
  elif [ "$is_killed" -eq 1 ] && [ "$is_back" -eq 0 ] && [ "$elapsed" -ge $((seconds / 2 + 3)) ]; then
    row "${green}<- started again${plain}"
    start_relay
    is_back=1
  elif [ $((elapsed % 2)) -eq 0 ]; then
    row
  fi
  [ "$is_killed" -ne "$is_back" ] || is_running relay || die "the relay has ended by itself"
done
reap bench || { cat "$dir/bench.log" >&2; die "pgbench failed"; }
if [ "$is_killed" -eq 1 ] && [ "$is_back" -eq 0 ]; then
  row "${green}<- started again${plain}"
  start_relay
fi
drain_ms=$(now_ms)
while [ "$(pending_n)" -ne 0 ]; do
  [ $(($(now_ms) - drain_ms)) -lt 60000 ] || die "$(pending_n) messages are still waiting a minute after the last payment"
  is_running relay || die "the relay has ended by itself"
  sleep 0.05
done
drain_ms=$(($(now_ms) - drain_ms))
row "${dim}all relayed${plain}"
relay_status=0
end relay TERM || relay_status=$?

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
key=$(redis --scan --pattern "outbox:{*}:account:$story" | sed -n 1p)
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
