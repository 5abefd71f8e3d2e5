#!/bin/bash
# Runs test programs and adds up their single tests.
#
#   run-tests.sh unit|fuzz|integration|ecosystems...      in the order given; fuzz: fuzzers over their kept inputs
#
# Environment: BUILD      directory of the build under test (build)
#              T          only programs with this in their name
#              TEST_LEAVE_OUT  integration programs to leave out: names without test_, between spaces
#              JOBS       integration programs that run side by side (4: they wait more than they compute); the others run one after the other
#              TEST_AS_ROLES  no: leave out what runs once more as roles with fewer rights
#              TEST_TIMEOUT  seconds for each program (300)
#              OUTBOXD_BIN   the relay that integration tests start ($BUILD/outboxd)
#
# The main integration programs run a second time with outboxd as roles that have no more rights than they need (docs/testing.md "Roles"): those are
# called test_order@relay and so on.
#
# The last line is "N passed, N failed[, N skipped]".  Every program's output is kept in $BUILD/test-logs.
set -uo pipefail

BUILD=${BUILD:-build}
T=${T:-}
TEST_LEAVE_OUT=" ${TEST_LEAVE_OUT:-} "
JOBS=${JOBS:-4}
TEST_TIMEOUT=${TEST_TIMEOUT:-300}
BUILD=$(realpath "$BUILD") || exit 1
export OUTBOXD_BIN=${OUTBOXD_BIN:-$BUILD/outboxd}
export CMOCKA_MESSAGE_OUTPUT=TAP
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}
export TSAN_OPTIONS=${TSAN_OPTIONS:-second_deadlock_stack=1}

logs=$BUILD/test-logs
mkdir -p "$logs"
results=$(mktemp -d) || exit 1

# Process ids of the programs under way: each is timeout(1), which leads a process group of its own.
declare -A running=() started=()
stop_all() {
  local pid
  for pid in "${!running[@]}"; do
    kill -TERM -- "-$pid" 2>/dev/null
  done
}
trap 'rm -rf "$results"' EXIT
trap 'stop_all; exit 130' INT TERM HUP

# Reads a program's TAP; prints "passed failed skipped".
count() {
  awk -v rc="$2" '
    /^1\.\.[0-9]+/ { planned += substr($0, 4) }
    /^not ok [0-9]+ # SKIP/ { skipped++; next }
    /^ok [0-9]+ - / { passed++ }
    /^not ok [0-9]+ - / { failed++ }
    END {
      # Tests that were announced and never reported, or a bad end (a crash, a timeout, a leak), count as a failure.
      if (passed + failed + skipped < planned || (rc != 0 && failed == 0)) failed++
      if (passed + failed + skipped == 0) failed++
      print passed + 0, failed + 0, skipped + 0
    }' "$1"
}

# report NAME LOG STATUS SECONDS
report() {
  local name=$1 log=$2 status=$3 seconds=$4 passed failed skipped word=ok
  read -r passed failed skipped < <(count "$log" "$status")
  printf '%s %s %s\n' "$passed" "$failed" "$skipped" >"$results/${name//\//_}"
  [ "$failed" -eq 0 ] || word=FAILED
  printf '%-6s %-44s %4d passed, %d failed%s  %s s\n' "$word" "$name" "$passed" "$failed" \
    "$([ "$skipped" -eq 0 ] || echo ", $skipped skipped")" "$seconds"
  grep '^run-tests: ' "$log" | sed 's/^/       /'
  if [ "$failed" -ne 0 ]; then
    if awk -v a="$seconds" -v b="$TEST_TIMEOUT" 'BEGIN { exit !(a >= b) }'; then
      echo "       stopped after $TEST_TIMEOUT s"
    elif [ "$status" -ne 0 ]; then
      echo "       exit status $status"
    fi
    sed 's/^/       | /' "$log"
  fi
}

# program, role, how much of it ($TEST_SCALE), and which of its tests: what a role can be in the way of, a minute altogether.
AS_ROLES='
cleanup maintenance 1 deletes_*
order relay 0.3 *
kill relay 0.2 *
fleet relay 1 *under_load
alert relay 1 *until_published
cleanup_relay maintenance 1 days*
init maintenance 1 makes_a_*
'

# start_one PROGRAM [ROLE SCALE TESTS]: in the background; finish_one reports whichever ends next.
start_one() {
  local program=$1 role=${2:-} name log settings=()
  [ -z "$role" ] || settings=("TEST_ROLES=$role" "TEST_SCALE=${TEST_SCALE:-$3}" "TEST_ONLY=${TEST_ONLY:-$4}")
  name=${program#"$BUILD"/tests/}${role:+@$role}
  log=$logs/${name//\//-}.log
  timeout --kill-after=10 "$TEST_TIMEOUT" env "${settings[@]}" "$program" >"$log" 2>&1 </dev/null &
  running[$!]="$name $log $EPOCHREALTIME"
}

finish_one() {
  local pid status name log began
  wait -n -p pid "${!running[@]}"
  status=$?
  read -r name log began <<<"${running[$pid]}"
  unset "running[$pid]"
  # What the program left behind in its group must not outlive it.
  if kill -KILL -- "-$pid" 2>/dev/null; then
    echo "run-tests: $name left processes behind; killed" >>"$log"
  fi
  report "$name" "$log" "$status" "$(awk -v a="$began" -v b="$EPOCHREALTIME" 'BEGIN { printf "%.1f", b - a }')"
}

# run_kind KIND JOBS
run_kind() {
  local kind=$1 jobs=$2 source program name
  # The longest first, so that none of them is alone at the end.
  for source in tests/"$kind"/test_{faults,outage,alert_database,alert,days}.c tests/"$kind"/{test,fuzz}_*.c; do
    if [ ! -e "$source" ] || [ -n "${started[$source]:-}" ]; then continue; fi
    started[$source]=yes
    program=$BUILD/${source%.c}
    [[ ${source#tests/} == *"$T"* ]] || continue
    name=$(basename "$source" .c)
    if [ "$kind" = integration ] && [[ $TEST_LEAVE_OUT == *" ${name#test_} "* ]]; then continue; fi
    if [ ! -x "$program" ]; then
      echo "run-tests: $program is not built" | tee "$logs/$kind-$(basename "$program").log" >&2
      printf '0 1 0\n' >"$results/$kind-$(basename "$program")"
      continue
    fi
    while [ ${#running[@]} -ge "$jobs" ]; do finish_one; done
    start_one "$program"
  done
  if [ "$kind" = integration ] && [ "${TEST_AS_ROLES:-yes}" != no ]; then run_as_roles "$jobs"; fi
  while [ ${#running[@]} -gt 0 ]; do finish_one; done
}

# run_as_roles JOBS
run_as_roles() {
  local jobs=$1 name role scale tests
  while read -r name role scale tests; do
    if [ -z "$name" ] || [[ integration/test_$name@$role.c != *"$T"* ]]; then continue; fi
    while [ ${#running[@]} -ge "$jobs" ]; do finish_one; done
    start_one "$BUILD/tests/integration/test_$name" "$role" "$scale" "$tests"
  done <<<"$AS_ROLES"
}

cd "$(dirname "$0")/.." || exit 1
for kind in "$@"; do
  case $kind in
  unit | fuzz | ecosystems) run_kind "$kind" 1 ;;
  integration) run_kind integration "$JOBS" ;;
  *)
    echo "run-tests: unit, fuzz, integration or ecosystems, not \"$kind\"" >&2
    exit 2
    ;;
  esac
done

if [ -z "$(ls -A "$results")" ]; then
  echo "run-tests: no test program has \"$T\" in its name" >&2
  exit 1
fi
cat "$results"/* | awk '
  { passed += $1; failed += $2; skipped += $3 }
  END {
    printf "%d passed, %d failed%s\n", passed, failed, skipped ? ", " skipped " skipped" : ""
    exit failed != 0
  }'
