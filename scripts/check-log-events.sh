#!/bin/bash
# Compares the events that the sources can log with the pages that describe them; a unit test calls it.
#
#   check-log-events.sh [--list] [SOURCE_DIR LOGGING_PAGE ALERTING_PAGE]
#
# Both directions, for each event: its levels and the names of its fields (tables "| event | level | ... |" of docs/logging.md). Then: every field
# is explained (table "| field | ... |"), every event that is marked for an alert has a rule in docs/alerting.md, and no rule waits for an
# event that there is not. --list prints what was found in the sources and ends.
#
# How events are found: calls of log_event, log_write and write_event whose level and event stand in the call as words, perhaps as
# "a ? b : c" (then the levels belong to the events in the same order), or as names[...].event for a table of names in the same file. A field is
# the string that a LOG_ macro, or a function that makes a field, begins with. A call that cannot be read so is an error: write it plainly.
set -euo pipefail
export LC_ALL=C # sort and comm agree

is_list=
if [ "${1:-}" = --list ]; then
  is_list=1
  shift
fi
cd "$(dirname "$0")/.."
sources=${1:-src}
logging=${2:-docs/logging.md}
alerting=${3:-docs/alerting.md}

# "event level L" and "event field F", one a line; "error TEXT" for what cannot be read.
in_sources() {
  awk '
    function fail(text) { print "error " file ": " text }

    # The file without comments, on one line, with strings left as they are.
    function strip(text,    out, at, c, rest, end) {
      out = ""
      while (match(text, /\/\*|"/)) {
        out = out substr(text, 1, RSTART - 1)
        c = substr(text, RSTART, 1)
        rest = substr(text, RSTART + (c == "/" ? 2 : 1))
        if (c == "/") {
          end = index(rest, "*/")
          text = substr(rest, end + 2)
        } else {
          match(rest, /^([^"\\]|\\.)*"/)
          out = out "\"" substr(rest, 1, RLENGTH)
          text = substr(rest, RLENGTH + 1)
        }
      }
      return out text
    }

    # Takes the arguments apart that begin at text; they are arg[1..n]. Returns n, 0 when the end is not found.
    function split_arguments(text,    n, depth, c, rest) {
      n = 1
      arg[1] = ""
      depth = 0
      while (text != "") {
        if (!match(text, /[][(){},"]/)) return 0
        arg[n] = arg[n] substr(text, 1, RSTART - 1)
        c = substr(text, RSTART, 1)
        rest = substr(text, RSTART + 1)
        if (c == "\"") {
          match(rest, /^([^"\\]|\\.)*"/)
          arg[n] = arg[n] "\"" substr(rest, 1, RLENGTH)
          text = substr(rest, RLENGTH + 1)
          continue
        }
        if (c == ")" && depth == 0) return n
        if (c == "," && depth == 0) {
          arg[++n] = ""
        } else {
          depth += c ~ /[[({]/ ? 1 : c == "," ? 0 : -1
          arg[n] = arg[n] c
        }
        text = rest
      }
      return 0
    }

    # All matches of pattern in text, from the first letter wanted on: into out[1..n].
    function find_all(text, pattern, out, skip,    n) {
      n = 0
      while (match(text, pattern)) {
        out[++n] = substr(text, RSTART + skip, RLENGTH - skip)
        sub(/"$/, "", out[n])
        text = substr(text, RSTART + RLENGTH)
      }
      return n
    }

    # The first string of every entry of the table of names.
    function read_names(name, events,    at, text, end) {
      if (!match(whole, "[^a-z_]" name "\\[[A-Z_0-9]*\\] *= *[{]")) return 0
      text = substr(whole, RSTART + RLENGTH)
      end = index(text, "};")
      return find_all(substr(text, 1, end), "[{]\"[a-z_0-9]+\"", events, 2)
    }

    function read_call(text,    n, levels_n, events_n, fields_n, i, e, name) {
      n = split_arguments(text)
      if (n < 2 || arg[1] ~ /^ *enum log_level/) return # a definition
      levels_n = find_all(arg[1], "LOG_(DEBUG|INFO|WARNING|ERROR|CRITICAL)", levels, 4)
      if (levels_n == 0) {
        # log_write hands its own arguments on.
        if (arg[1] !~ /^[ ]*level[ ]*$/ || arg[2] !~ /^[ ]*event[ ]*$/) fail("no level in the call with " arg[1] ", " arg[2])
        return
      }
      if (match(arg[2], /[a-z_]+\[[^]]*\]\.event/)) {
        name = substr(arg[2], RSTART, RLENGTH)
        sub(/\[.*/, "", name)
        events_n = read_names(name, events)
      } else {
        events_n = find_all(arg[2], "\"[a-z_0-9]+\"", events, 1)
      }
      if (events_n == 0) {
        fail("no event in the call with " arg[1] ", " arg[2])
        return
      }
      for (e = 1; e <= events_n; e++) {
        for (i = 1; i <= levels_n; i++) {
          if (levels_n != events_n || levels_n == 1 || i == e) print events[e] " level " tolower(levels[i])
        }
      }
      for (i = 4; i <= n; i++) arg[3] = arg[3] "," arg[i]
      fields_n = find_all(arg[3], "[A-Za-z_]+\\(\"[a-z_0-9]+\"", fields, 0)
      for (i = 1; i <= fields_n; i++) {
        sub(/.*\("/, "", fields[i])
        for (e = 1; e <= events_n; e++) print events[e] " field " fields[i]
      }
    }

    function read_file(    text) {
      whole = strip(whole)
      gsub(/[ \t\n]+/, " ", whole)
      text = whole
      while (match(text, /[^a-z_](log_event|log_write|write_event)\(/)) {
        text = substr(text, RSTART + RLENGTH)
        read_call(text)
      }
    }

    FNR == 1 && NR > 1 { read_file(); whole = "" }
    { file = FILENAME; whole = whole "\n" $0 }
    END { read_file() }
  ' "$sources"/*.c
}

# The same from the tables of the page; "event alert X" beside them, and "- explained F" from the table of fields.
in_page() {
  awk -F' *\\| *' '
    function words(cell, kind, event,    n, i, word) {
      gsub(/[`,]/, " ", cell)
      n = split(cell, word, " ")
      for (i = 1; i <= n; i++) print event " " kind " " word[i]
    }
    /^\| event \| level \|/ { table = "events"; next }
    /^\| field \|/ { table = "fields"; next }
    !/^\|/ { table = "" }
    /^\| *-/ { next }
    table == "events" {
      event = $2
      gsub(/`/, "", event)
      words($3, "level", event)
      words($4, "alert", event)
      if ($5 != "-") words($5, "field", event)
    }
    table == "fields" { words($2, "explained", "-") }
  ' "$logging"
}

found=$(in_sources | sort -u)
if [ -n "$is_list" ]; then
  printf '%s\n' "$found"
  exit
fi
described=$(in_page | sort -u)

status=0
# complain TEXT LINES: once for each line
complain() {
  local line
  while IFS= read -r line; do
    [ -n "$line" ] || continue
    echo "check-log-events: $1: $line" >&2
    status=1
  done <<<"$2"
}
lines() { grep -E "$2" <<<"$1" || true; }
# only_in LINES OTHERS: both sorted
only_in() { comm -23 - /dev/fd/3 <<<"$1" 3<<<"$2"; }

contract=$(lines "$found" ' (level|field) ')
promised=$(lines "$described" ' (level|field) ')
complain "cannot be read" "$(lines "$found" '^error ')"
complain "in the sources, not in $logging" "$(only_in "$contract" "$promised")"
complain "in $logging, not in the sources" "$(only_in "$promised" "$contract")"

fields=$(lines "$found" ' field ' | cut -d' ' -f3 | sort -u)
explained=$(lines "$described" ' explained ' | cut -d' ' -f3 | sort -u)
complain "a field that $logging does not explain" "$(only_in "$fields" "$explained")"
complain "a field that $logging explains and no event has" "$(only_in "$explained" "$fields")"

# In rules names stand in quotes, or in a list of alternatives.
events=$(lines "$found" ' level ' | cut -d' ' -f1 | sort -u)
wanted=$(lines "$described" ' alert (page|ticket)$' | cut -d' ' -f1)
quoted=$(grep -oE '["|][a-z_]+' "$alerting" | tr -d '"|' | sort -u)
complain "no rule in $alerting for the event" "$(only_in "$wanted" "$quoted")"
named=$(grep -oE '(event|EVENT) *(=~?|==|:|in) *[\["'"'"']+[a-z_|]+' "$alerting" | grep -oE '[a-z_|]+$' | tr '|' '\n' | sort -u)
complain "a rule in $alerting for an event that there is not" "$(only_in "$(grep -vx event <<<"$named")" "$events")"
exit $status
