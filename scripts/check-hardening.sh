#!/bin/sh
# Checks on the finished program that the hardening flags of the Makefile took effect.
set -eu
export LC_ALL=C

program=${1:?check-hardening.sh PROGRAM}
failures=0

check() {
  if eval "$2"; then
    echo "ok      $1"
  else
    echo "MISSING $1"
    failures=$((failures + 1))
  fi
}

header=$(readelf -hW "$program")
segments=$(readelf -lW "$program")
dynamic=$(readelf -dW "$program")
symbols=$(readelf --dyn-syms -W "$program")
notes=$(readelf -nW "$program")

has() { printf '%s\n' "$1" | grep -Eq "$2"; }
# The three are called through eval in check.
# shellcheck disable=SC2317
has_no_writable_code() { ! printf '%s\n' "$segments" | grep -E '^ *LOAD' | grep -Eq ' RWE '; }
# shellcheck disable=SC2317
has_plain_stack() { has "$segments" 'GNU_STACK' && ! has "$segments" 'GNU_STACK.* RWE '; }

check "position independent (PIE)" 'has "$header" "Type: +DYN"'
check "RELRO" 'has "$segments" GNU_RELRO'
check "BIND_NOW" 'has "$dynamic" "BIND_NOW|FLAGS.* NOW"'
check "stack not executable" has_plain_stack
check "no segment both writable and executable" has_no_writable_code
check "no RPATH" '! has "$dynamic" "\\((RPATH|RUNPATH)\\)"'
check "stack protector" 'has "$symbols" __stack_chk_fail'
check "_FORTIFY_SOURCE" 'has "$symbols" "__(snprintf|vsnprintf|memcpy|fprintf|vfprintf|printf|read|recv)_chk"'
case $(uname -m) in
x86_64) check "control flow protection (IBT, SHSTK)" 'has "$notes" "x86 feature: .*IBT.*SHSTK"' ;;
esac

[ "$failures" -eq 0 ] || {
  echo "check-hardening: $failures missing in $program" >&2
  exit 1
}
