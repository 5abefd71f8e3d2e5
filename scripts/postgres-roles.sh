#!/bin/bash
# Roles for PostgreSQL with no more rights than they need (docs/privileges.md):
#
#   relay         outboxd run --no-cleanup: reads the outbox, marks messages
#   maintenance   one outboxd run without --no-cleanup, outboxd init: the same, and makes and drops partitions or deletes old rows
#   writer        applications, which are to be members of it: inserts events, calls outbox_record
#   consumer      who reads the streams and keeps track in processed_messages: calls outbox_process_once; members again
#
#   postgres-roles.sh [--database CONNINFO] [--table NAME] [--relay ROLE] [--maintenance ROLE] [--writer ROLE]
#                     [--consumer ROLE] [--keep-owner] [--no-stats] [--apply]
#
#   --database     as outboxd takes it (else $DATABASE_URL, else libpq's PG* variables); a superuser, or who owns the table and may make roles
#   --table        outbox_messages; it need not be there yet: then run this once more when it is
#   --relay, --maintenance, --writer, --consumer   names (outboxd_relay, outboxd_maintenance, outboxd_writer, outboxd_consumer); roles that
#                  exist are taken as they are
#   --keep-owner   a partitioned table stays its owner's, and maintenance becomes a member of the owner: it then has all that the owner has.
#                  Otherwise maintenance becomes the table's owner, and the owner so far a member of maintenance
#   --no-stats     without pg_read_all_stats: then the alert about old transactions sees the relay's own only
#   --apply        run the statements, in one transaction; otherwise they are printed and nothing is changed
#
# May be run again at any time.  Roles are made without a password: give them one with psql's \password.
set -euo pipefail

database=${DATABASE_URL:-}
table=outbox_messages
relay=outboxd_relay
maintenance=outboxd_maintenance
writer=outboxd_writer
consumer=outboxd_consumer
keep_owner=false
stats=true
is_applied=

fail() {
  echo "postgres-roles: $*" >&2
  exit 2
}

while [ $# -gt 0 ]; do
  case $1 in
  --database | --table | --relay | --maintenance | --writer | --consumer)
    if [ $# -lt 2 ] || [ -z "$2" ]; then fail "$1 needs a value"; fi
    printf -v "${1#--}" '%s' "$2"
    shift 2
    ;;
  --keep-owner) keep_owner=true && shift ;;
  --no-stats) stats=false && shift ;;
  --apply) is_applied=1 && shift ;;
  --help | -h)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
  *) fail "there is no option ${1%%=*}; --help lists them" ;;
  esac
done
if [ "$(printf '%s\n' "$relay" "$maintenance" "$writer" "$consumer" | sort -u | wc -l)" -ne 4 ]; then
  fail "--relay, --maintenance, --writer and --consumer are four roles; give them different names"
fi

# The schema that a table which is not there yet would be made in; "" for the first of the search_path.
schema=
case $table in
\"*\".*) schema=${table%%\".*} && schema=${schema#\"} ;;
\"*) ;;
*.*) schema=${table%%.*} && schema=${schema,,} ;;
esac

psql=(psql -qXAt -v ON_ERROR_STOP=1 -v "table=$table" -v "schema=$schema" -v "relay=$relay" -v "maintenance=$maintenance"
  -v "writer=$writer" -v "consumer=$consumer" -v "stats=$stats" -v "keep_owner=$keep_owner")
[ -z "$database" ] || psql+=(-d "$database")

statements=$("${psql[@]}" -f "$(dirname "$(readlink -f "$0")")/postgres-roles.sql")
script="BEGIN;
SET LOCAL lock_timeout = '2s';
$statements
COMMIT;"
if [ -n "$is_applied" ]; then
  "${psql[@]}" <<<"$script"
else
  printf '%s\n' "$script"
fi
exists=$("${psql[@]}" <<<"SELECT to_regclass(:'table') IS NOT NULL")
if [ "$exists" != t ]; then
  echo "postgres-roles: there is no table $table yet: make it (outboxd init, as $maintenance), then run this once more" >&2
fi
