# shellcheck shell=bash disable=SC2034,SC2154 # variables go from here to whoever reads this in, and the other way
# What make demo and make example share: words on the screen, and a private PostgreSQL and Redis that are gone afterwards.
#
# Read in by bash with errexit, nounset and pipefail, in the directory of the sources, after
#   show=NAME        for messages and the name of the directory
#   told_logs=(...)  logs whose last lines are shown when it fails, by the names given to run
#
# Environment: TEST_PG_BIN, TEST_REDIS_SERVER, KEEP, NO_COLOR (scripts/demo.sh)

# ---- words on the screen

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
else
  bold='' dim='' green='' red='' plain=''
fi

step_n=0
step() {
  step_n=$((step_n + 1))
  printf '\n%s%d  %s%s\n' "$bold" "$step_n" "$1" "$plain"
}
say() { printf '   %s\n' "$1"; }
quiet() { printf '   %s%s%s\n' "$dim" "$1" "$plain"; }

# 1234567 -> 1,234,567
grouped() { sed -E ':a; s/^(-?[0-9]+)([0-9]{3})/\1,\2/; ta' <<<"$1"; }
# cents -> 1,234.56
money() {
  local sign='' cents=$1
  if [ "$cents" -lt 0 ]; then sign='-' cents=$((-cents)); fi
  printf '%s%s.%02d' "$sign" "$(grouped $((cents / 100)))" $((cents % 100))
}

failures_n=0
# check STATUS TEXT FIGURES
check() {
  if [ "$1" -eq 0 ]; then
    printf '   %s[ok]%s %-46s %s%s%s\n' "$green" "$plain" "$2" "$dim" "$3" "$plain"
  else
    failures_n=$((failures_n + 1))
    printf '   %s[WRONG]%s %-43s %s\n' "$red" "$plain" "$2" "$3"
  fi
}
# holds EXPRESSION...: 0 or 1, for check
holds() { if [ "$@" ]; then echo 0; else echo 1; fi; }

die() {
  printf '%s%s: %s%s\n' "$red" "$show" "$1" "$plain" >&2
  exit 1
}

now_ms() { echo $(($(date +%s%N) / 1000000)); }

# ---- processes: only what was started here, by its own pid

declare -A running=()
# run NAME COMMAND...: in the background; what it says goes to NAME.log
run() {
  local name=$1
  shift
  "$@" >>"$dir/$name.log" 2>&1 &
  running[$name]=$!
}
is_running() { kill -0 "${running[$1]}" 2>/dev/null; }
# reap NAME: waits for its end; the exit status is its
reap() {
  local pid=${running[$1]}
  unset "running[$1]"
  wait "$pid" 2>/dev/null
}
# end NAME SIGNAL
end() {
  kill "-$2" "${running[$1]}" 2>/dev/null || true
  reap "$1"
}

dir='' pg_dir='' pg_bin='' redis_server='' as_postgres=()
cleanup() {
  local status=$? name
  trap - EXIT INT TERM HUP
  # PostgreSQL ends its processes itself when it is asked to.
  [ -z "${running[postgres]:-}" ] || kill -QUIT "${running[postgres]}" 2>/dev/null || true
  for name in "${!running[@]}"; do
    [ "$name" = postgres ] || kill -KILL "${running[$name]}" 2>/dev/null || true
  done
  wait 2>/dev/null || true
  if [ "$status" -eq 1 ] && [ -n "$dir" ]; then
    for name in "${told_logs[@]}"; do
      if [ -s "$dir/$name.log" ]; then
        printf '\nThe last of %s.log:\n' "$name" >&2
        tail -n 5 "$dir/$name.log" >&2
      fi
    done
  fi
  if [ -n "$dir" ]; then
    if [ "${KEEP:-0}" = 1 ]; then echo "kept: $dir" >&2; else rm -rf "$dir"; fi
  fi
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# ---- what is needed

# A directory of its own, and where the servers' programs are.
find_servers() {
  local candidate program
  pg_bin=${TEST_PG_BIN:-}
  if [ -z "$pg_bin" ]; then
    for candidate in $(printf '%s\n' /usr/lib/postgresql/*/bin | sort -V) "$(pg_config --bindir 2>/dev/null || true)"; do
      if [ -x "$candidate/initdb" ] && [ -x "$candidate/pgbench" ]; then pg_bin=$candidate; fi
    done
  fi
  [ -n "$pg_bin" ] || die "found no PostgreSQL server with pgbench; scripts/install-deps.sh test installs it"
  redis_server=${TEST_REDIS_SERVER:-redis-server}
  for program in "$redis_server" redis-cli; do
    command -v "$program" >/dev/null || die "found no $program; scripts/install-deps.sh test installs it"
  done

  dir=$(mktemp -d "${TMPDIR:-/tmp}/outboxd-$show.XXXXXX")
  chmod 711 "$dir"
  pg_dir=$dir/pg
  mkdir "$pg_dir"
  as_postgres=(env -C "$pg_dir")
  # PostgreSQL refuses to run as root.
  if [ "$(id -u)" -eq 0 ]; then
    chown postgres "$pg_dir"
    as_postgres+=(setpriv --reuid postgres --regid postgres --init-groups)
  fi
  export PGHOST=$pg_dir PGPORT=5432 PGUSER=postgres PGDATABASE=postgres PGOPTIONS='-c client_min_messages=warning'
  unset PGPASSWORD PGSERVICE PGSSLMODE DATABASE_URL REDIS_URL
}

# ---- PostgreSQL, by a socket in the directory; every commit is on disk before it is acknowledged

psql() { "$pg_bin/psql" -qAtX -v ON_ERROR_STOP=1 "$@"; }

make_postgres() {
  "${as_postgres[@]}" "$pg_bin/initdb" -D "$pg_dir/data" -U postgres -A trust --no-locale -E UTF8 -N >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; die "initdb fails"; }
}

# start_postgres CONNECTIONS
start_postgres() {
  local i
  run postgres "${as_postgres[@]}" "$pg_bin/postgres" -D "$pg_dir/data" -c listen_addresses='' -c unix_socket_directories="$pg_dir" \
    -c max_connections="$1" -c shared_buffers=128MB -c max_wal_size=2GB
  for ((i = 0; i < 600; i++)); do
    if psql -c 'SELECT 1' >/dev/null 2>&1; then return; fi
    is_running postgres || break
    sleep 0.1
  done
  tail -n 5 "$dir/postgres.log" >&2
  die "PostgreSQL does not start"
}

# All its processes; the exit status is the postmaster's.
kill_postgres() {
  local postmaster=${running[postgres]} backends
  kill -STOP "$postmaster" # so that it starts no more of them
  mapfile -t backends < <(ps -o pid= --ppid "$postmaster" | tr -d ' ')
  kill -KILL "$postmaster" "${backends[@]}" 2>/dev/null || true
  reap postgres
}

# ---- Redis, without a port as well; every write is on disk before it is acknowledged

redis() { redis-cli -s "$dir/redis.sock" "$@"; }
start_redis() {
  local i from=0
  [ ! -e "$dir/redis.log" ] || from=$(wc -c <"$dir/redis.log")
  run redis "$redis_server" --port 0 --unixsocket "$dir/redis.sock" --dir "$dir" --appendonly yes --appendfsync always --save '' --daemonize no
  for ((i = 0; i < 600; i++)); do
    if [ "$(redis ping 2>/dev/null || true)" = PONG ]; then break; fi
    is_running redis || break
    sleep 0.05
  done
  [ "$(redis ping 2>/dev/null || true)" = PONG ] || die "Redis does not start: $(tail -n 1 "$dir/redis.log")"
  # docs/guarantees.md, "aof-load-truncated"
  if grep -q 'Truncating the AOF' <(tail -c "+$((from + 1))" "$dir/redis.log"); then redis bgrewriteaof >/dev/null; fi
}

servers() {
  printf 'PostgreSQL %s, %s' "$(psql -c 'SHOW server_version' | cut -d' ' -f1)" "$(redis info server | awk -F '[:\r]' '
    $1 == "redis_version" { name = "Redis " $2 } $1 == "valkey_version" { valkey = "Valkey " $2 }
    END { print valkey == "" ? name : valkey }')"
}
