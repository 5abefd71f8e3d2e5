#!/bin/sh
# Writes C for files that are embedded in the program.
#
#   embed.sh header FILE...   declarations
#   embed.sh source FILE...   definitions: arrays of char, since a string literal may not be as long as a script
#
# sql/claim.sql becomes embed_claim_sql (ends with a NUL) and embed_claim_sql_bytes (does not count it).
set -eu
export LC_ALL=C

form=$1
shift

name_of() {
  basename "$1" | tr -c 'A-Za-z0-9\n' '_'
}

echo "/* Made by scripts/embed.sh; do not edit. */"
case $form in
header)
  printf '#ifndef OUTBOXD_EMBED_H\n#define OUTBOXD_EMBED_H\n\n#include <stddef.h>\n'
  for file in "$@"; do
    name=$(name_of "$file")
    printf '\n/* %s */\nextern const char embed_%s[];\nextern const size_t embed_%s_bytes;\n' "$file" "$name" "$name"
  done
  printf '\n#endif\n'
  ;;
source)
  printf '#include "embed.h"\n'
  for file in "$@"; do
    name=$(name_of "$file")
    printf '\n/* %s */\nconst char embed_%s[] = {\n' "$file" "$name"
    od -An -v -td1 "$file" | awk '{ gsub(/[ \t]+/, ","); sub(/^,/, ""); sub(/,$/, ""); if ($0 != "") print "  " $0 "," }'
    printf '  0};\nconst size_t embed_%s_bytes = sizeof embed_%s - 1;\n' "$name" "$name"
  done
  ;;
*)
  echo "embed.sh: header or source, not \"$form\"" >&2
  exit 2
  ;;
esac
