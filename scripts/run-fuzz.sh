#!/bin/bash
# Runs fuzzers under libFuzzer, two at a time; make fuzz calls it.
#
# Environment: BUILD         directory of the fuzzers' build (build/clang-fuzzer)
#              FUZZ          only fuzzers with this in their name
#              FUZZ_SECONDS  for each (60)
#              FUZZ_KEEP     1: what was found is merged into tests/fuzz/corpus, as few inputs as cover the same
#              FUZZ_JOBS     fuzzers side by side (2)
#
# The last line is "N passed, N failed".  Below $BUILD/fuzz: logs, inputs that were found (corpus/NAME; used by the next run too), inputs
# that failed (failed/NAME-...).
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

BUILD=${BUILD:-build/clang-fuzzer}
FUZZ=${FUZZ:-}
FUZZ_SECONDS=${FUZZ_SECONDS:-60}
FUZZ_KEEP=${FUZZ_KEEP:-}
FUZZ_JOBS=${FUZZ_JOBS:-2}
INPUT_BYTES_MAX=4096
# A whole run may take longer by the slowest input and the start.
GRACE_S=120
# Without detect_stack_use_after_return, which make test has: it costs three quarters of the speed.
export ASAN_OPTIONS=${ASAN_OPTIONS:-detect_leaks=1:strict_string_checks=1}
export UBSAN_OPTIONS=${UBSAN_OPTIONS:-print_stacktrace=1}

out=$BUILD/fuzz
kept=tests/fuzz/corpus
mkdir -p "$out/logs" "$out/failed" "$out/corpus" || exit 1
passed=0
failed=0

declare -A running=()
stop_all() {
  local pid
  for pid in "${!running[@]}"; do
    kill -TERM -- "-$pid" 2>/dev/null
  done
}
trap 'stop_all; exit 130' INT TERM HUP

# figure LOG NAME: a figure of libFuzzer's last report.
figure() { sed -n "s/^stat::$2: *\([0-9]*\)$/\1/p" "$1" | tail -n 1; }

start_one() {
  local name=$1 args=()
  mkdir -p "$out/corpus/$name"
  [ ! -e "tests/fuzz/$name.dict" ] || args+=("-dict=tests/fuzz/$name.dict")
  timeout --kill-after=10 "$((FUZZ_SECONDS + GRACE_S))" "$BUILD/tests/fuzz/fuzz_$name" "${args[@]}" \
    -max_total_time="$FUZZ_SECONDS" -max_len="$INPUT_BYTES_MAX" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
    -artifact_prefix="$out/failed/$name-" "$out/corpus/$name" "$kept/$name" >"$out/logs/$name.log" 2>&1 </dev/null &
  running[$!]="$name $(find "$out/corpus/$name" -type f | wc -l)"
}

finish_one() {
  local pid status name log found_before found artifact
  wait -n -p pid "${!running[@]}"
  status=$?
  read -r name found_before <<<"${running[$pid]}"
  unset "running[$pid]"
  log=$out/logs/$name.log
  found=$(($(find "$out/corpus/$name" -type f | wc -l) - found_before))
  if [ "$status" -eq 0 ]; then
    passed=$((passed + 1))
    printf 'ok     %-14s %11s runs, %7s a second, %d inputs found\n' "$name" "$(figure "$log" number_of_executed_units)" \
      "$(figure "$log" average_exec_per_sec)" "$found"
    return
  fi
  failed=$((failed + 1))
  printf 'FAILED %-14s exit status %d\n' "$name" "$status"
  tail -n 60 "$log" | sed 's/^/       | /'
  artifact=$(sed -n 's/.*Test unit written to \(.*\)$/\1/p' "$log" | tail -n 1)
  if [ -n "$artifact" ]; then
    printf '       the input:  %s\n' "$artifact"
    printf '       replay:     %s %s\n' "$BUILD/tests/fuzz/fuzz_$name" "$artifact"
    printf '       keep it:    cp %s %s/NAME (make unit then runs it)\n' "$artifact" "$kept/$name"
  fi
}

# Adds those inputs to the kept ones that cover something new, smallest first.
keep() {
  local name=$1 file short
  "$BUILD/tests/fuzz/fuzz_$name" -merge=1 -max_len="$INPUT_BYTES_MAX" "$kept/$name" "$out/corpus/$name" \
    >"$out/logs/$name-merge.log" 2>&1 || {
    echo "run-fuzz: merging $name failed: $out/logs/$name-merge.log" >&2
    return 1
  }
  # libFuzzer names a file by all 40 digits of its hash.
  for file in "$kept/$name"/*; do
    short=${file##*/}
    [[ ! $short =~ ^[0-9a-f]{40}$ ]] || mv "$file" "$kept/$name/${short:0:8}"
  done
  echo "kept   $name: $(find "$kept/$name" -type f | wc -l) inputs"
}

names=()
for source in tests/fuzz/fuzz_*.c; do
  name=${source##*/fuzz_}
  name=${name%.c}
  [[ $name != *"$FUZZ"* ]] || names+=("$name")
done
if [ ${#names[@]} -eq 0 ]; then
  echo "run-fuzz: no fuzzer has \"$FUZZ\" in its name" >&2
  exit 1
fi

for name in "${names[@]}"; do
  while [ ${#running[@]} -ge "$FUZZ_JOBS" ]; do finish_one; done
  start_one "$name"
done
while [ ${#running[@]} -gt 0 ]; do finish_one; done

if [ "$FUZZ_KEEP" = 1 ]; then
  for name in "${names[@]}"; do
    keep "$name" || failed=$((failed + 1))
  done
fi

printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" -eq 0 ]
