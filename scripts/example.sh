#!/bin/bash
# make example: payments, told to a notifier and an analytics service through outboxd while everything is killed in turn; then compared, database to database.
# docs/example.md walks through it.
#
# Environment: OUTBOXD_BIN, BUILD   what make built; without them it is built here first
#              TEST_PG_BIN, TEST_REDIS_SERVER, KEEP   as for scripts/demo.sh
#              EXAMPLE_CLIENTS, EXAMPLE_ACCOUNTS, EXAMPLE_RATE   16, 300, 80 payments a second
#              EXAMPLE_SEED         repeats payments and victims of another run
#              EXAMPLE_DAMAGE       TABLE:KIND of scripts/example/damage.sh, done before the check: it has to fail then
# Exit status: 0 when every check holds.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=${EXAMPLE_CLIENTS:-16}
accounts=${EXAMPLE_ACCOUNTS:-300}
rate=${EXAMPLE_RATE:-80}
seed=${EXAMPLE_SEED:-$((RANDOM * 32768 + RANDOM))}
RANDOM=$seed

show=example told_logs=(relay notifier-1 notifier-2 analytics-1 analytics-2)
# shellcheck source=scripts/demo-common.sh
. scripts/demo-common.sh

# ---- what is needed

build=${BUILD:-build}
if [ -z "${OUTBOXD_BIN:-}" ]; then
  scripts/install-deps.sh test
  make -s DEPS=no build/outboxd build/outbox-consume build/examples/payments/analytics build/tests/tools/outbox-check
fi
outboxd=${OUTBOXD_BIN:-$PWD/build/outboxd}
consume=$build/outbox-consume
analytics=$build/examples/payments/analytics
checker=$build/tests/tools/outbox-check
for program in "$outboxd" "$consume" "$analytics" "$checker"; do
  [ -x "$program" ] || die "$program is not built yet: run make example"
done
python=''
for candidate in python3 /usr/bin/python3; do
  if [ -z "$python" ] && "$candidate" -c 'import psycopg2' 2>/dev/null; then python=$candidate; fi
done
[ -n "$python" ] || die "found no Python with psycopg2; scripts/install-deps.sh test installs it"
find_servers
export PSQL=$pg_bin/psql

# ---- the services, each started by the same words the first time and after a kill

start() {
  case $1 in
  postgres) start_postgres $((clients + 60)) ;;
  redis) start_redis ;;
  relay) run relay "$outboxd" run --database dbname=payments --redis "$redis_url" --ensure-group notifier --ensure-group analytics ;;
  notifier-*)
    NOTIFIER_DATABASE=dbname=notifier run "$1" "$consume" --group notifier --threads 2 --database dbname=notifier --redis "$redis_url" \
      --exec "exec $python examples/payments/notify.py"
    ;;
  analytics-*) run "$1" "$analytics" dbname=analytics "$redis_url" ;;
  # pgbench stands for the payment service: it ends when it loses its database, and is started again.
  payments)
    payments_n=$((payments_n + 1))
    run payments "$pg_bin/pgbench" -n -M prepared -c "$clients" -j 2 -R "$rate" -T 600 -D accounts="$accounts" \
      --random-seed $((seed + payments_n)) -f examples/payments/pay.sql payments
    ;;
  esac
}
services=(relay notifier-1 notifier-2 analytics-1 analytics-2)
payments_n=0

# ---- the story

printf '%soutboxd%s, a worked example: a payment service tells a notifier and an analytics service what it\n' "$bold" "$plain"
printf 'has done. Everything is killed in turn, and still each event arrives once and in order.\n'

step "A PostgreSQL and a Redis of our own, gone again afterwards"
redis_url=unix://$dir/redis.sock
make_postgres
start postgres
start redis
quiet "$(servers); both sync what they acknowledge to disk"

step "A database for each service"
for name in payments notifier analytics; do
  psql -c "CREATE DATABASE $name"
  # In a consumer's database it is processed_messages and outbox_process_once that are wanted.
  "$outboxd" init --database "dbname=$name" --plain >>"$dir/init.log" 2>&1 || { cat "$dir/init.log" >&2; die "outboxd init fails"; }
done
psql -d payments -v accounts="$accounts" -f scripts/demo/schema.sql
psql -d notifier -f examples/payments/notifier.sql
psql -d analytics -f examples/payments/analytics.sql
psql -c CHECKPOINT # so that what recovery has to do is what happened since
say "payments    $(grouped "$accounts") accounts; $clients clients pay one another, one payment in ten is rolled back"
say "notifier    outbox-consume, 2 processes of 2 workers, with a handler in Python for each"
say "analytics   a program in C with liboutbox, 2 processes of 2 workers"
quiet "seed $seed (EXAMPLE_SEED repeats the payments and whom the kills hit, not the microsecond)"

step "Payments, and kill -9 for everybody"
printf '\n   %s%6s  %9s  %9s  %9s  %9s%s\n' "$dim" second committed 'in Redis' notified analysed "$plain"
count() { psql -d "$1" -c "SELECT count(*) FROM $2" 2>/dev/null || echo -; }
began_ms=$(now_ms)
# Counted against the current, so that no column is ahead of the one before it.
row() {
  local analysed notified streamed committed
  analysed=$(count analytics account_events) notified=$(count notifier notifications)
  streamed=$(redis --raw EVAL "$in_redis" 0 2>/dev/null | grep -xE '[0-9]+' || echo -)
  committed=$(count payments outbox_messages)
  printf '   %6d  %9s  %9s  %9s  %9s%s\n' $((($(now_ms) - began_ms) / 1000)) "$(grouped "$committed")" "$(grouped "$streamed")" \
    "$(grouped "$notified")" "$(grouped "$analysed")" "${1:+  $1}"
}
in_redis="local n = 0 for lane = 0, 15 do n = n + redis.call('XLEN', 'outbox:{' .. lane .. '}') end return n"
in_groups="local n = 0 for lane = 0, 15 do for _, group in ipairs({'notifier', 'analytics'}) do
  n = n + redis.call('XPENDING', 'outbox:{' .. lane .. '}', group)[1] end end return n"
start relay
for name in notifier-1 notifier-2 analytics-1 analytics-2 payments; do start "$name"; done

# kill_9 VICTIM: what it was, what has to be started again; counted as killed when that is what it died of
kill_9() {
  local name='' status=0 worker handler=''
  case $1 in
  relay) name=relay what='the relay' ;;
  notifier) name=notifier-$((1 + RANDOM % 2)) what="a notifier worker, $name" ;;
  analytics) name=analytics-$((1 + RANDOM % 2)) what="an analytics worker, $name" ;;
  redis) name=redis what='Redis' ;;
  handler)
    gone=() worker=notifier-$((1 + RANDOM % 2)) what="a handler process of $worker"
    # There is none for a moment when one has just been replaced.
    while [ -z "$handler" ]; do
      is_running "$worker" || die "$worker has ended by itself"
      handler=$(ps -o pid= --ppid "${running[$worker]}" | tr -d ' ' | head -n 1)
    done
    kill -KILL "$handler"
    handler_of=$worker
    killed+=(handler)
    return
    ;;
  postgres)
    what='PostgreSQL, all its processes'
    kill_postgres || status=$?
    reap payments || true # its clients have lost their connections
    ;;
  esac
  if [ -n "$name" ]; then
    gone=("$name")
    end "$name" KILL || status=$?
  else
    gone=(postgres payments)
  fi
  if [ "$status" -eq 137 ]; then killed+=("$1"); fi
}
handler_of=''
killed=() gone=() what=''
expect_running() {
  local name
  for name in "${services[@]}" redis postgres payments; do
    [[ " ${gone[*]} " == *" $name "* ]] || is_running "$name" || die "$name has ended by itself"
  done
}
# pause MILLISECONDS, with a row every two seconds
pause() {
  local until=$(($(now_ms) + $1))
  while [ "$(now_ms)" -lt "$until" ]; do
    sleep 0.1
    expect_running
    if [ "$(now_ms)" -ge "$next_row_ms" ]; then row; next_row_ms=$(($(now_ms) + 2000)); fi
  done
}
next_row_ms=$((began_ms + 2000))
victims=(relay notifier analytics handler redis postgres)
pause 4000
for victim in "${victims[@]}"; do
  pause $((RANDOM % 1000))
  kill_9 "$victim"
  row "${red}<- kill -9: $what${plain}"
  if [ ${#gone[@]} -gt 0 ]; then
    pause 1000
    for name in "${gone[@]}"; do start "$name"; done
    row "${green}<- started again${plain}"
    gone=()
  fi
  next_row_ms=$(($(now_ms) + 2000))
  pause 2500
done
end payments TERM || true
gone=(payments)

# What was being committed when pgbench ended is committed or not by now.
while [ "$(count payments "pg_stat_activity WHERE application_name = 'pgbench'")" != 0 ]; do sleep 0.1; done
# All have seen all, or have had two minutes for it: then the check says what is missing.
events_n=$(count payments outbox_messages)
drain_ms=$(now_ms)
while [ "$(count payments 'outbox_messages WHERE published_at IS NULL')" -ne 0 ] || [ "$(count notifier notifications)" -lt "$events_n" ] ||
  [ "$(count analytics account_events)" -lt "$events_n" ]; do
  expect_running
  [ $(($(now_ms) - drain_ms)) -lt 120000 ] || break
  sleep 0.1
done
row "${dim}the last payment is through${plain}"
stopped_badly=''
for name in "${services[@]}"; do end "$name" TERM || stopped_badly="$stopped_badly $name"; done

# ---- the proof

told_logs=() # what they say tells no more than the checks
if [ -n "${EXAMPLE_DAMAGE:-}" ]; then
  table=${EXAMPLE_DAMAGE%%:*}
  [ "$table" = notifications ] && database=notifier || database=analytics
  scripts/example/damage.sh "$database" "$table" "${EXAMPLE_DAMAGE#*:}"
fi

step "Each event in each database once, in order?"
declare -A found=()
# audit NOTIFIER ANALYTICS: into found
audit() {
  local report status=0 pair
  report=$(scripts/example/audit.sh payments "$1" "$2") || status=$?
  [ "$status" -le 1 ] || die "the databases cannot be compared"
  found=()
  for pair in $report; do found[${pair%%=*}]=${pair#*=}; done
  return "$status"
}
audited=0
audit notifier analytics || audited=1
rolled_back_n=$(psql -d payments -c "SELECT last_value - (SELECT count(*) FROM payments) FROM payments_id_seq")
checked=0
"$checker" --database dbname=payments --redis "$redis_url" --json >"$dir/check.json" || checked=$?
handler_ends_n=$(grep -c '"event":"handler_ended"' "$dir/$handler_of.log" || true)
check "$(holds "${killed[*]}" = "${victims[*]}" -a "$handler_ends_n" -gt 0)" 'all six died of signal 9' "${killed[*]}"
check "$(holds $((found[payments_unrecorded] + found[payments_out_of_order])) -eq 0 -a "${found[events]}" -gt 0)" \
  'payments: each has its two events' "$(grouped "${found[payments]}") payments, $(grouped "${found[events]}") events"
check "$checked" 'Redis: each of them once, in order' "outbox-check says so"
for consumer in notifier analytics; do
  [ "$consumer" = notifier ] && rows=${found[notifications]} || rows=${found[account_events]}
  check "$(holds "${found[${consumer}_lost]}" -eq 0)" "$consumer: every committed event" "$(grouped "$rows") of $(grouped "${found[events]}")"
  check "$(holds "${found[${consumer}_twice]}" -eq 0)" "$consumer: each of them once" "${found[${consumer}_twice]} twice"
  check "$(holds "${found[${consumer}_out_of_order]}" -eq 0)" "$consumer: in order for each account" "${found[${consumer}_out_of_order]} displaced, ${found[accounts]} accounts"
  check "$(holds $((found[${consumer}_made_up] + found[${consumer}_rolled_back])) -eq 0 -a "$rolled_back_n" -gt 0)" \
    "$consumer: none of a rolled-back payment" "$((found[${consumer}_made_up] + found[${consumer}_rolled_back])); $rolled_back_n numbers have no payment"
  check "$(holds "${found[${consumer}_altered]}" -eq 0)" "$consumer: as the payment service wrote it" "${found[${consumer}_altered]} differ"
done
check "$(holds "${found[analytics_totals]}" -eq 0)" "analytics: its sums are the accounts' balances" "${found[analytics_totals]} differ"
parked_n=$(redis --scan --pattern 'outbox:{*}:parked:*' | wc -l)
unacknowledged_n=$(redis --raw EVAL "$in_groups" 0)
check "$(holds "$parked_n" -eq 0 -a "$unacknowledged_n" -eq 0)" 'nothing was given up, all is acknowledged' "$parked_n parked, $unacknowledged_n pending"
check "$(holds -z "$stopped_badly")" 'everybody stopped cleanly when asked' "${stopped_badly:-${#services[@]} processes}"
if [ "$audited" -ne 0 ] && [ "$failures_n" -eq 0 ]; then failures_n=1; fi
[ "$checked" -eq 0 ] || "$checker" --database dbname=payments --redis "$redis_url" || true
again_n=$(cat "$dir"/notifier-?.log | grep -c '^given again:' || true)
say "notify.py was given $again_n events that it had committed before, and recognised them."
if [ "$failures_n" -ne 0 ]; then
  printf '\n%sChecks that do not hold: %d%s\n' "$red" "$failures_n" "$plain"
  exit 1
fi

step "Would the check have seen it? Copies of the databases, with one event damaged"
# bites TEXT DATABASE TABLE KIND: exactly this finding
bites() {
  local copy=damaged status=0 name wrong='' finding=$2_$4
  [ "$3" != account_totals ] || finding=analytics_totals
  psql -c "CREATE DATABASE $copy TEMPLATE $2"
  scripts/example/damage.sh "$copy" "$3" "$4"
  if [ "$2" = notifier ]; then audit "$copy" analytics || status=$?; else audit notifier "$copy" || status=$?; fi
  for name in "${!found[@]}"; do
    case $name in accounts | payments | events | notifications | account_events | "$finding") continue ;; esac
    [ "${found[$name]}" -eq 0 ] || [ "$4:$name" = "made_up:$2_rolled_back" ] || wrong="$wrong $name"
  done
  check "$(holds "$status" -eq 1 -a "${found[$finding]}" -gt 0 -a -z "$wrong")" "$1" "found${wrong:+, and also$wrong}"
  psql -c "DROP DATABASE $copy"
}
bites 'notifier: one deleted' notifier notifications lost
bites 'analytics: one there twice' analytics account_events twice
bites 'notifier: one moved behind later ones' notifier notifications out_of_order
bites 'analytics: one that nobody committed' analytics account_events made_up
bites 'notifier: one with another text' notifier notifications altered
bites 'analytics: a sum that is a cent off' analytics account_totals altered

if [ "$failures_n" -ne 0 ]; then
  printf '\n%sThe check does not see what it should: %d%s\n' "$red" "$failures_n" "$plain"
  exit 1
fi
printf '\n%sAll checks hold.%s Next: docs/example.md walks through it.\n' "$green" "$plain"
