#!/bin/sh
# Checks on the finished program that the hardening flags of the Makefile took effect.
set -eu
export LC_ALL=C

program=${1:?check-hardening.sh PROGRAM}
failures=0

header=$(readelf -hW "$program")
segments=$(readelf -lW "$program")
dynamic=$(readelf -dW "$program")
symbols=$(readelf --dyn-syms -W "$program")
main=$(objdump -d --disassemble=main "$program")

say() {
  if [ "$1" = yes ]; then
    echo "ok      $2"
  else
    echo "MISSING $2"
    failures=$((failures + 1))
  fi
}
# has NAME TEXT PATTERN, lacks NAME TEXT PATTERN
has() { if printf '%s\n' "$2" | grep -Eq "$3"; then say yes "$1"; else say no "$1"; fi; }
lacks() { if printf '%s\n' "$2" | grep -Eq "$3"; then say no "$1"; else say yes "$1"; fi; }

has "position independent (-fPIE -pie)" "$header" 'Type: +DYN'
has "relocations read-only (-z relro)" "$segments" 'GNU_RELRO'
has "bound at the start (-z now)" "$dynamic" 'BIND_NOW|FLAGS.* NOW'
has "stack named (-z noexecstack)" "$segments" 'GNU_STACK'
lacks "no memory both writable and executable" "$segments" ' RWE '
lacks "no RPATH" "$dynamic" '\((RPATH|RUNPATH)\)'
has "stack protector (-fstack-protector-strong)" "$symbols" '__stack_chk_fail'
has "checked string functions (-D_FORTIFY_SOURCE=2)" "$symbols" '__[a-z]+_chk@'
case $(uname -m) in
x86_64)
  # Looked for in the code: the linker leaves the note out when libc's own start files have none, as Debian's.
  has "control flow (-fcf-protection)" "$main" 'endbr64'
  # A frame larger than a page is made page by page, each touched at once: gcc by "or", clang by "mov".
  probes=$(objdump -d --no-show-raw-insn "$program" | grep -A1 -E 'sub +[$]0x1000,%rsp' || true)
  has "stack touched page by page (-fstack-clash-protection)" "$probes" '(or|mov)[lq]? +[$]0x0,(0x[0-9a-f]+)?\(%rsp\)'
  ;;
esac

if [ "$failures" -ne 0 ]; then
  echo "check-hardening: $failures missing in $program" >&2
  exit 1
fi
