#!/bin/bash
# liboutbox as make install puts it in place: what it exports, and a program of its users, built with what pkg-config says.
#
#   test-library.sh CONNINFO     of a database that has the outbox table, where that program records an event; an integration test calls it
#
# Below make it takes the library of the same CC, SAN and BUILD.
set -euo pipefail
cd "$(dirname "$0")/.."
unset BUILD # of run-tests.sh: the directory of one compiler; make's own settings come by MAKEFLAGS
conninfo=${1:?a connection string}

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
  echo "test-library: $*" >&2
  exit 1
}
make --no-print-directory -s DEPS=no install PREFIX="$dir/real" >"$dir/log" 2>&1 || {
  cat "$dir/log" >&2
  fail "make install failed"
}

# Nothing but outbox_ is exported, and a program is built with what pkg-config says, against either form.
exported=$(nm -D --defined-only "$dir/real/lib/liboutbox.so" | awk '$2 != "A" { print $3 }' | sed 's/@.*//')
[ -n "$exported" ] || fail "the library exports nothing"
if grep -v '^outbox_' <<<"$exported"; then fail "the library exports more than outbox_*"; fi
while read -r name; do
  grep -qx "$name" <<<"$exported" || fail "the library does not export $name"
done < <(sed -n 's/^OUTBOX_[A-Z]* .*[ *]\(outbox_[a-z0-9_]*\)(.*/\1/p' "$dir/real/include/outbox.h")
others=$(nm -g --defined-only "$dir/real/lib/liboutbox.a" | awk 'NF == 3 { print $3 }' | grep -v '^outbox_' || true)
soname=$(objdump -p "$dir/real/lib/liboutbox.so" | awk '$1 == "SONAME" { print $2 }')
[ "$soname" = liboutbox.so.0 ] || fail "its soname is $soname"
export PKG_CONFIG_PATH=$dir/real/lib/pkgconfig
# A sanitized library wants its run-time in the program.
sanitized=$(nm "$dir/real/lib/liboutbox.a" | grep -c '__[at]san_init' || true)
if [ "$sanitized" -eq 0 ]; then
  [ -z "$others" ] || fail "the archive defines $others"
  # shellcheck disable=SC2046 # words
  "${CC:-gcc}" -std=c11 -Wall -Wextra -Werror -o "$dir/app" tests/library/app.c $(pkg-config --cflags --libs outbox)
  LD_LIBRARY_PATH=$dir/real/lib "$dir/app" >"$dir/log" || fail "the program does not run"
  grep -q "^$(pkg-config --modversion outbox) ........-....-7...-" "$dir/log" || fail "it says $(cat "$dir/log")"
  # docs/library.md: a PREFIX that the dynamic linker does not look into, written into the program.
  # shellcheck disable=SC2046
  "${CC:-gcc}" -std=c11 -o "$dir/app-rpath" tests/library/app.c $(pkg-config --cflags --libs outbox) \
    -Wl,-rpath,"$(pkg-config --variable=libdir outbox)"
  env -u LD_LIBRARY_PATH "$dir/app-rpath" >"$dir/log" || fail "the program with a run-time path does not run"
  # shellcheck disable=SC2046
  "${CC:-gcc}" -std=c11 -o "$dir/app-static" tests/library/app.c -I"$dir/real/include" $(pkg-config --cflags libpq) \
    "$dir/real/lib/liboutbox.a" $(pkg-config --libs libpq hiredis jansson) -pthread
  "$dir/app-static" >"$dir/log" || fail "the program with the archive does not run"
  LD_LIBRARY_PATH=$dir/real/lib "$dir/app" "$conninfo" >"$dir/log" || fail "the program cannot record an event"
  grep -q ' first$' "$dir/log" || fail "it says $(cat "$dir/log")"
fi
