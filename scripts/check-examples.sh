#!/bin/bash
# The syntax of the examples that no test runs (Go, Ruby), as far as their tools are here.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

status=0
# check TOOL FILE COMMAND...
check() {
  local tool=$1 file=$2
  shift 2
  if ! command -v "$tool" >/dev/null; then
    echo "check-examples: no $tool here: $file is not checked" >&2
  elif ! "$@" "$file" >/dev/null; then
    echo "check-examples: $file is refused by $tool" >&2
    status=1
  fi
}
for file in examples/go/*.go; do
  check gofmt "$file" gofmt -e
  if command -v gofmt >/dev/null && [ -n "$(gofmt -l "$file")" ]; then
    echo "check-examples: $file is not formatted as gofmt does" >&2
    status=1
  fi
done
for file in examples/ruby/*.rb; do check ruby "$file" ruby -c; done
exit $status
