#!/bin/bash
# Puts the examples into the documents: the block below each line "<!-- examples/x/y -->" becomes that file.  tests/unit/test_examples.c compares.
set -euo pipefail
cd "$(dirname "$0")/.."

for document in docs/*.md; do
  if ! grep -q '^<!-- examples/' "$document"; then continue; fi
  quoted=$(mktemp)
  awk '
    in_block { if ($0 == "```") { in_block = 0; print } ; next }
    { print }
    /^<!-- examples\/.* -->$/ { file = $2; next }
    file != "" && /^```/ {
      while ((got = (getline line < file)) > 0) print line
      if (got < 0) { print "quote-examples: cannot read " file > "/dev/stderr"; exit 1 }
      close(file)
      file = ""
      in_block = 1
    }' "$document" >"$quoted"
  cat "$quoted" >"$document"
  rm "$quoted"
done
