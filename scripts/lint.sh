#!/bin/bash
# Everything that can be said about the sources without running them; make lint calls it.
#
# Environment: LINT_CPPFLAGS  the preprocessor's flags, from the Makefile
#              LINT_JOBS      processes side by side (2)
# All parts run; the exit status says whether each was content.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

LINT_JOBS=${LINT_JOBS:-2}
# The flags are words for a shell: -DOUTBOXD_VERSION='"..."'.
declare -a cppflags
eval "cppflags=(${LINT_CPPFLAGS:?run make lint} -Itests/lib)"
shopt -s nullglob
sources=(src/*.c tests/*/*.c packaging/*.c examples/*/*.c)
headers=(include/*.h include/*/*.h src/*.h tests/*/*.h)
shell_scripts=(scripts/*.sh scripts/*/*.sh .ci/run)
failures=0

# part NAME FUNCTION
part() {
  local began=$SECONDS word=ok
  "$2" || {
    word=FAILED
    failures=$((failures + 1))
  }
  printf '%-6s lint: %s  %d s\n' "$word" "$1" "$((SECONDS - began))"
}

layers() { scripts/check-layers.sh; }

# Each header twice in a file of its own: it brings what it needs, and has a guard.
headers_alone() {
  local header status=0
  for header in "${headers[@]}"; do
    printf '#include "%s"\n#include "%s"\nextern int nothing_else;\n' "$header" "$header" |
      gcc -std=c11 "${cppflags[@]}" -I. -Wall -Wextra -Wpedantic -Wno-unused-function -Werror -fsyntax-only -x c - || {
      echo "lint: $header does not compile alone" >&2
      status=1
    }
  done
  return $status
}

formatting() { clang-format --dry-run --Werror "${sources[@]}" "${headers[@]}"; }

# On stderr clang-tidy counts the warnings it does not show.
tidy() {
  printf '%s\0' "${sources[@]}" |
    xargs -0 -P "$LINT_JOBS" -I '{}' clang-tidy --quiet '{}' -- -std=c11 "${cppflags[@]}" \
      2> >(grep -Ev '^[0-9]+ warnings? generated|^Suppressed |^Use -header-filter' >&2)
}

# Left out: NULL is a pointer in C (varFuncNullUB is about C++); the *_r functions it wants are obsolete or not needed in tests of one
# thread; a local variable may have a function's name (the compiler sees when that goes wrong).
cpp() {
  cppcheck --quiet --std=c11 --enable=warning,performance,portability,style --inline-suppr --error-exitcode=1 \
    -j "$LINT_JOBS" --library=posix '-D_Noreturn=__attribute__((noreturn))' --suppress=varFuncNullUB \
    --suppress=getpwnamCalled --suppress=readdirCalled --suppress=shadowFunction \
    -Iinclude -Itests/lib -Isrc src tests packaging examples
}

shell() { shellcheck "${shell_scripts[@]}"; }

part "layers" layers
part "headers alone" headers_alone
part "formatting" formatting
part "clang-tidy" tidy
part "cppcheck" cpp
part "shellcheck" shell

if [ "$failures" -ne 0 ]; then
  echo "lint: $failures parts failed" >&2
  exit 1
fi
