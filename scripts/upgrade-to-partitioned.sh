#!/bin/bash
# Makes a plain outbox table partitioned, while writers go on writing (docs/operations.md, "From a plain table to the partitioned one").
#
#   upgrade-to-partitioned.sh [--database CONNINFO] [--table NAME] [--outboxd PATH] [--disconnect-relays] [--wait SECONDS]
#                             [--dry-run | --apply]
#
#   --database           as outboxd takes it (else $DATABASE_URL, else libpq's PG* variables); the table's owner, who may make tables in its schema
#   --table              outbox_messages
#   --outboxd            the program, for outboxd init at the end; else the one in PATH, else the one that was installed or built with this script
#   --disconnect-relays  end the relays' sessions for the exchange instead of waiting until they have been stopped.  Each relay then ends with
#                        status 1 (table_replaced) and has to be started again: systemd does so by itself.  Needs pg_signal_backend, or the relays' role
#   --wait               how long to wait for relays to be stopped, and for locks (600); then it ends, and may be run again
#   --dry-run            checks, prints the steps, changes nothing; this is what happens without --apply
#   --apply              does it
#
# What is interrupted, at whatever step, goes on where it was when this is run again.  No lock is waited for longer than 0.3 s at a time.
# Exit status: 0 done, 1 something is in the way or took too long (it says what), 2 the command line is wrong.
set -euo pipefail

database=${DATABASE_URL:-}
table=outbox_messages
outboxd=
wait=600
can_disconnect=
is_applied=
here=$(dirname "$(readlink -f "$0")")

lock_wait=300ms
exchange_wait=600ms

usage() {
  echo "upgrade-to-partitioned: $*" >&2
  exit 2
}

fail() {
  echo "upgrade-to-partitioned: $*" >&2
  exit 1
}

say() { echo "upgrade-to-partitioned: $*"; }

while [ $# -gt 0 ]; do
  case $1 in
  --database | --table | --outboxd | --wait)
    if [ $# -lt 2 ] || [ -z "$2" ]; then usage "$1 needs a value"; fi
    printf -v "${1#--}" '%s' "$2"
    shift 2
    ;;
  --disconnect-relays) can_disconnect=1 && shift ;;
  --dry-run) is_applied='' && shift ;;
  --apply) is_applied=1 && shift ;;
  --help | -h)
    sed -n '2,/^set -/{/^set -/d;s/^# \{0,1\}//;p}' "$0"
    exit 0
    ;;
  *) usage "there is no option ${1%%=*}; --help lists them" ;;
  esac
done
[[ $wait =~ ^[0-9]+$ ]] || usage "--wait takes a number of seconds, not \"$wait\""

export PGAPPNAME=upgrade-to-partitioned
psql=(psql -qXAt -v ON_ERROR_STOP=1 -v VERBOSITY=verbose)
[ -z "$database" ] || psql+=(-d "$database")

# What every session begins with, whatever the role or the conninfo sets.
session="SET timezone = 'UTC'; SET datestyle = 'ISO'; SET lock_timeout = '$lock_wait'; SET statement_timeout = 0; SET client_min_messages = 'warning'"

# Runs a file of statements ("-" for standard input), with further arguments of psql.
query() {
  local file=$1
  shift
  "${psql[@]}" -v "table=${full:-$table}" -v "bound=${bound:-}" -c "$session" "$@" -f "$file"
}

read_state() {
  local row
  row=$(query "$here/upgrade-to-partitioned-state.sql" -F '|') || fail "PostgreSQL cannot be asked, see above"
  [ -n "$row" ] || fail "there is no table $table in this database (or not in the search_path)"
  IFS='|' read -r state oid lock_key schema name plain_name bound <<<"$row"
  full="$schema.$name"
  plain="$schema.$plain_name"
}

# Runs statements (standard input) until they get through: a lock that is not to be had is tried for again.
deadline=$((SECONDS + wait))
apply() {
  local what=$1 script out
  script=$(cat)
  while ! out=$(query - <<<"$script" 2>&1); do
    case $out in
    *'ERROR:  55P03:'* | *'ERROR:  57014:'* | *'ERROR:  40P01:'*) ;;
    *) fail "$what: $out" ;;
    esac
    if [ $SECONDS -ge $deadline ]; then
      fail "$what: not possible within $wait s; nothing is half done, run this again. The last error: $out"
    fi
    sleep 1
  done
}

# Statements (standard input) are shown, or run.
step() {
  if [ -n "$is_applied" ]; then
    say "$1"
    apply "$1"
  else
    printf -- '-- %s\n%s\n\n' "$1" "$(cat)"
  fi
}

# -------------------------------------------------------------------------------------------------- what is in the way

find_outboxd() {
  local candidate
  # In PATH, where this script was installed, in the sources.
  for candidate in "$(command -v outboxd || true)" "$here/../../../bin/outboxd" "$here/../build/outboxd"; do
    if [ -z "$outboxd" ] && [ -x "$candidate" ]; then outboxd=$candidate; fi
  done
  [ -x "$outboxd" ] || fail "the program outboxd is needed at the end and was not found: --outboxd PATH"
}

check() {
  local obstacles
  obstacles=$(query "$here/upgrade-to-partitioned-check.sql") || fail "the catalog cannot be read, see above"
  if [ -n "$obstacles" ]; then
    echo "upgrade-to-partitioned: $full cannot be made partitioned yet; nothing has been changed:" >&2
    echo "  ${obstacles//$'\n'/$'\n'  }" >&2
    exit 1
  fi
  find_outboxd
}

# The bound: midnight UTC, a day from now at least, and above every row.  Reads all of the table once.
choose_bound() {
  local facts n_null is_far
  facts=$(query - -F '|' <<<"SELECT count(*) FILTER (WHERE m.created_at IS NULL),
    coalesce(max(m.created_at)::timestamptz > now() + interval '31 days', false),
    to_char(greatest(date_trunc('day', now()) + interval '2 days', date_trunc('day', max(m.created_at)::timestamptz) + interval '1 day'),
            'YYYY-MM-DD HH24:MI:SS+00')
    FROM ONLY $full m") || fail "the table cannot be read, see above"
  IFS='|' read -r n_null is_far bound <<<"$facts"
  if [ "$n_null" != 0 ]; then
    fail "rows without a created_at, by which the table is to be partitioned: $n_null; UPDATE $full SET created_at = now() WHERE created_at IS NULL"
  fi
  if [ "$is_far" = t ]; then
    fail "there are rows created more than 31 days ahead of the clock: set that right first (SELECT id, created_at FROM $full WHERE created_at > now() + interval '31 days')"
  fi
}

# -------------------------------------------------------------------------------------------------- steps

set_bound() {
  step "from now on every new row has to be created before $bound; no row is read for that" <<SQL
ALTER TABLE $full ADD CONSTRAINT outboxd_bound CHECK (created_at IS NOT NULL AND created_at < '$bound') NOT VALID;
SQL
}

prove_bound() {
  step "all rows there are have been, too: this reads the whole table, and stops neither writers nor relays" <<SQL
ALTER TABLE $full VALIDATE CONSTRAINT outboxd_bound;
SQL
}

# The sessions of relays: who holds advisory locks of this table (include/outboxd/locks.h).
relays="FROM pg_locks l JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.objid BETWEEN 65536 AND 393215 AND l.pid <> pg_backend_pid()"

wait_for_relays() {
  local n said=
  while n=$(query - <<<"SELECT count(DISTINCT l.pid) $relays AND l.classid = $oid") && [ "$n" != 0 ]; do
    if [ -z "$said" ]; then
      say "stop all relays of this table now (systemctl stop 'outboxd*'): the tables are exchanged as soon as the last one has ended ($n sessions)"
      said=1
    fi
    [ $SECONDS -lt $deadline ] || fail "relays are still at work after $wait s ($n sessions): stop them, or give --disconnect-relays, and run this again"
    sleep 0.2
  done
}

# Members of the fleet share 0x30000, the one that maintains the table has 0x50000.
exchange() {
  local ending=""
  [ -z "$can_disconnect" ] || ending="
    PERFORM pg_terminate_backend(r.pid) FROM (SELECT DISTINCT l.pid $relays AND l.classid = $oid) r;"
  step "the partitioned table takes the place of the plain one, which becomes its first partition, $plain" <<SQL
BEGIN;
-- No relay is at work, and none can begin.
DO \$outboxd\$ BEGIN
  FOR i IN 1..200 LOOP$ending
    IF pg_try_advisory_xact_lock($lock_key, 196608) AND pg_try_advisory_xact_lock($lock_key, 327680) THEN RETURN; END IF;
    PERFORM pg_sleep(0.02);
  END LOOP;
  RAISE EXCEPTION 'a relay is at work on the table' USING ERRCODE = 'lock_not_available';
END \$outboxd\$;
LOCK TABLE $full IN ACCESS EXCLUSIVE MODE;
SET LOCAL statement_timeout = '$exchange_wait';
$(exchange_statement)
COMMIT;
SQL
}

# Run: made and executed under the lock.  Shown: as it would be now.
exchange_statement() {
  if [ -n "$is_applied" ]; then
    cat "$here/upgrade-to-partitioned-exchange.sql"
    echo '\gexec'
  else
    query "$here/upgrade-to-partitioned-exchange.sql"
    echo ";"
  fi
}

make_partitions() {
  local what="partitions for the days after that one, and their privileges"
  local args=(init --table "$full")
  [ -z "$database" ] || args+=(--database "$database")
  if [ -z "$is_applied" ]; then
    printf -- '-- %s\noutboxd init --table %q\n\n' "$what" "$full"
    return
  fi
  say "$what"
  "$outboxd" "${args[@]}" ||
    fail "outboxd init has failed, see above: mend it and run this again before $bound; there is one partition only from then on"
}

drop_bound() {
  step "the constraint has done its work" <<SQL
ALTER TABLE $plain DROP CONSTRAINT outboxd_bound;
SQL
}

# -------------------------------------------------------------------------------------------------- the whole

# Prints what is still to be done.
show() {
  echo "-- $full is \"$state\"; with --apply:"
  if [ "$state" != exchanged ]; then
    check
    case $state in plain | stale) choose_bound ;; esac
    case $state in plain | stale) set_bound ;; esac
    [ "$state" = proven ] || prove_bound
    exchange
  fi
  make_partitions
  drop_bound
}

# Does the next thing.
go_on() {
  case $state in
  plain)
    check
    say "reading $full once, for rows without a created_at or far ahead of the clock"
    choose_bound
    set_bound
    ;;
  stale)
    step "the bound $bound is too near by now: another one" <<SQL
ALTER TABLE $full DROP CONSTRAINT outboxd_bound;
SQL
    ;;
  bounded)
    check
    prove_bound
    ;;
  proven)
    check
    [ -n "$can_disconnect" ] || wait_for_relays
    exchange
    say "exchanged: start the relays again where nothing does so by itself"
    ;;
  exchanged)
    find_outboxd
    make_partitions
    drop_bound
    ;;
  esac
}

read_state
while :; do
  case $state in
  'done')
    say "$full is partitioned; the rows of before are in $plain"
    exit 0
    ;;
  foreign) fail "$full is partitioned already, and not by this script: there is nothing to do" ;;
  'no table') fail "$full is neither a table nor a partitioned table" ;;
  esac
  if [ -z "$is_applied" ]; then
    show
    exit 0
  fi
  go_on
  read_state
done
