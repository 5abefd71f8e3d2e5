#!/bin/bash
# Checks that includes point downwards, so that the relay stays a one-way road (docs/architecture.md).
#
# A module is a file name without its ending: src/pg.c and include/outboxd/pg.h are both "pg".  A new file needs a place in the
# table below: the lowest layer that lies above all it includes.
set -euo pipefail
cd "$(dirname "$0")/.."

# layer: modules, lowest first.
LAYERS='
0: embed err locks outbox sha1
1: buf clock histogram partition say stop systemd units uuid7
2: alert_rules alloc backoff cfg consume_cfg consume_options fleet log net option_parse options pgarray progress queue redis_error selector template trim_rule url
3: batch cloudevent entry exec_handler exec_line held_back journal keyset lane link pg pgtick redis round round_reply sql
4: claim claimer horizon lease publisher publisher_impl publisher_take publisher_write schema settle table
5: alert alert_probe cleanup cleanup_detach cleanup_impl cleanup_partitions cleanup_rows cleanup_said consume_held consume_impl consume_lane consume_message consume_read consume_redis consume_session consume_worker coordinator coordinator_batches coordinator_claims coordinator_lanes record record_writer trimmer
6: cmd_check cmd_check_acl cmd_check_impl cmd_check_plan cmd_check_postgres cmd_check_redis cmd_check_rights cmd_check_state cmd_dead cmd_dead_change cmd_dead_impl cmd_init cmd_init_functions cmd_init_impl cmd_init_index cmd_init_notify cmd_replay cmd_replay_impl cmd_replay_read cmd_replay_write cmd_status cmd_status_impl cmd_status_postgres cmd_status_print cmd_status_redis consume_peek consumer metrics relay relay_progress service stats
7: consume_main main
'

# The stages of the road: they meet in the layers above and never include each other.  publisher_take and publisher_write are parts of publisher.
STAGES='claimer lease publisher'

failures=0
fail() {
  echo "check-layers: $*" >&2
  failures=$((failures + 1))
}

declare -A layer_of is_stage is_used
while IFS=: read -r layer modules; do
  [ -n "$layer" ] || continue
  for module in $modules; do
    layer_of[$module]=$layer
  done
done <<<"$LAYERS"
for module in $STAGES; do
  is_stage[$module]=1
done

is_used[embed]=1 # made at build time
for file in src/*.[ch] include/*.h include/*/*.h; do
  [ -e "$file" ] || continue
  module=${file##*/}
  module=${module%.*}
  is_used[$module]=1
  layer=${layer_of[$module]:-}
  if [ -z "$layer" ]; then
    fail "$file is not in the table: add \"$module\" to a line of LAYERS in scripts/check-layers.sh"
    continue
  fi
  while IFS= read -r included; do
    other=${included##*/}
    other=${other%.*}
    other_layer=${layer_of[$other]:-}
    if [ -z "$other_layer" ]; then
      fail "$file includes \"$included\", which is not in the table: add \"$other\" to a line of LAYERS in scripts/check-layers.sh"
    elif [ "$other_layer" -gt "$layer" ]; then
      fail "$file (layer $layer) includes \"$included\" (layer $other_layer): upwards"
    elif [ -n "${is_stage[${module%%_*}]:-}" ] && [ -n "${is_stage[${other%%_*}]:-}" ] && [ "${module%%_*}" != "${other%%_*}" ]; then
      fail "$file includes \"$included\": stages do not know each other"
    fi
  done < <(sed -n 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*"\([^"]*\)".*/\1/p' "$file")
done
for module in "${!layer_of[@]}"; do
  [ -n "${is_used[$module]:-}" ] || fail "\"$module\" is in LAYERS, but there is no such file: take it out"
done

# only FILE PATTERN WHAT PATH...: none of the paths but FILE may match.
only() {
  local file=$1 pattern=$2 what=$3 hit
  shift 3
  while IFS= read -r hit; do
    fail "$hit: only $file may $what"
  done < <(grep -nE "$pattern" "$@" | grep -v "^$file:" | cut -d: -f1,2)
}
only src/pg.c 'PG_DIAG_|PQresultErrorField' "read the fields of a PostgreSQL error" src/*.[ch] include/*/*.h
only src/pg.c '"([0-9][0-9A-Z]{4}|[A-Z][0-9A-Z]{2,3}[0-9])"' "know SQLSTATEs" src/*.c
only src/redis.c '#[[:space:]]*include[[:space:]]*[<"]hiredis' "include hiredis" src/*.[ch] include/*/*.h

if [ "$failures" -ne 0 ]; then
  echo "check-layers: $failures found" >&2
  exit 1
fi
