#!/bin/bash
# Says which relative links of the documents below a directory lead nowhere; scripts/test-install.sh and scripts/test-deb.sh call it.
#
#   check-links.sh DIRECTORY
#
# Exit status: 0 every link leads to a file, 1 some do not, or there are no links at all.
set -euo pipefail

dir=${1:?a directory}
links_n=0
status=0
while IFS= read -r page; do
  while IFS= read -r link; do
    links_n=$((links_n + 1))
    if [ ! -e "$(dirname "$page")/$link" ]; then
      echo "check-links: $page: there is no $link" >&2
      status=1
    fi
  done < <({ grep -oE '\]\([^)]+\)' "$page" || true; } | sed -E 's/^\]\(//; s/\)$//; s/#.*//; /^$/d; /^[a-z]+:/d' | sort -u)
done < <(find "$dir" -name '*.md')
if [ "$links_n" -eq 0 ]; then
  echo "check-links: no page below $dir has a link" >&2
  status=1
fi
exit $status
