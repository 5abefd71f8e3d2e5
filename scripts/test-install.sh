#!/bin/bash
# make install into a directory of its own, what is there, and what uninstall leaves; a unit test calls it.
#
# Below make it takes the program of the same CC, SAN and BUILD.
# systemd-analyze, mandoc and man look at what was installed where they are to be had.
set -euo pipefail
cd "$(dirname "$0")/.."
unset BUILD # of run-tests.sh: the directory of one compiler; make's own settings come by MAKEFLAGS

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
fail() {
  echo "test-install: $*" >&2
  exit 1
}
run_make() { make --no-print-directory -s DEPS=no "$@" >"$dir/log" 2>&1 || {
  cat "$dir/log" >&2
  fail "make $* failed"
}; }

# DESTDIR and PREFIX part where files are put from where they will be found.
run_make install DESTDIR="$dir/stage" PREFIX=/opt/outboxd
root=$dir/stage/opt/outboxd
for file in bin/outboxd bin/outbox-consume share/man/man1/outbox-consume.1 share/bash-completion/completions/outbox-consume \
  share/zsh/site-functions/_outbox-consume share/man/man1/outboxd.1 share/bash-completion/completions/outboxd share/zsh/site-functions/_outboxd \
  lib/systemd/system/outboxd.service lib/systemd/system/outboxd@.service lib/sysusers.d/outboxd.conf \
  lib/liboutbox.a lib/liboutbox.so lib/liboutbox.so.0 include/outbox.h lib/pkgconfig/outbox.pc share/man/man3/outbox.3 \
  share/doc/outboxd/README.md share/doc/outboxd/docs/guarantees.md share/doc/outboxd/LICENSE share/doc/outboxd/outboxd.env; do
  [ -s "$root/$file" ] || fail "make install leaves out $file"
done
scripts/check-links.sh "$root/share/doc/outboxd" || fail "links of the installed documents lead nowhere"

# The scripts that the documents name, with what they read, also when they are called by a link from elsewhere.
installed=$root/share/outboxd/scripts
named=$(grep -ohE 'scripts/(postgres-roles|redis-user|upgrade-to-partitioned)[a-z-]*\.(sh|sql)' README.md docs/*.md | sort -u)
[ "$(wc -l <<<"$named")" -ge 3 ] || fail "the documents name no scripts: $named"
for script in $named; do
  [ -s "$root/share/outboxd/$script" ] || fail "the documents name $script, which is not installed"
done
for script in "$installed"/*.sh; do
  "$script" --help >"$dir/log" || fail "$script does not start"
  grep -q "^ *${script##*/} " "$dir/log" || fail "$script does not say how it is called"
done
mkdir "$dir/bin"
for name in postgres-roles upgrade-to-partitioned; do
  ln -s "$installed/$name.sh" "$dir/bin/$name"
  # shellcheck disable=SC2013 # words
  for file in $(grep -oE "${name}[a-z-]*\.sql" "$installed/$name.sh"); do
    [ -s "$installed/$file" ] || fail "$name.sh reads $file, which is not installed"
  done
done
# A psql that says which file it is to run, and that there is a table where that is asked.
cat >"$dir/bin/psql" <<'PSQL'
#!/bin/bash
for argument; do
  if [[ $argument == *.sql ]]; then cat "$argument" >/dev/null && echo "-- ran ${argument##*/}" && exit; fi
done
echo t
PSQL
chmod 0755 "$dir/bin/psql"
PATH=$dir/bin:$PATH postgres-roles >"$dir/log" 2>&1 || fail "postgres-roles.sh fails: $(cat "$dir/log")"
grep -qx -- '-- ran postgres-roles.sql' "$dir/log" || fail "postgres-roles.sh does not find its SQL"

# Whoever forgets the password is told; the command stays the only thing on stdout.
env -u OUTBOXD_REDIS_PASSWORD "$installed/redis-user.sh" >"$dir/command" 2>"$dir/said"
grep -qx 'redis-user: no password set: export OUTBOXD_REDIS_PASSWORD' "$dir/said" || fail "redis-user.sh does not tell of a missing password"
[[ $(cat "$dir/command") == "ACL SETUSER outboxd on resetkeys "* ]] || fail "redis-user.sh prints $(cat "$dir/command")"
OUTBOXD_REDIS_PASSWORD=secret "$installed/redis-user.sh" >"$dir/command" 2>"$dir/said"
[ ! -s "$dir/said" ] || fail "redis-user.sh says $(cat "$dir/said")"
grep -q "^ACL SETUSER outboxd on resetpass '#[0-9a-f]\{64\}' resetkeys " "$dir/command" || fail "redis-user.sh prints $(cat "$dir/command")"

# What make says: some words, not its commands.
make --no-print-directory DEPS=no install DESTDIR="$dir/loud" PREFIX=/opt/outboxd >"$dir/log" 2>&1 || fail "make install failed"
if awk 'length > 200 { exit 1 }' "$dir/log"; then :; else fail "make install prints its commands"; fi
case " ${MAKEFLAGS:-} " in
*' V='*) ;;
*) grep -q '^  INSTALL  [0-9]* files below ' "$dir/log" || fail "make install does not say what it did: $(cat "$dir/log")" ;;
esac
# The demo and the example wait for nothing that they do not run.
for goal in demo example; do
  make --no-print-directory -n DEPS=no BUILD="$dir/none" "$goal" >"$dir/log" 2>&1 || fail "make -n $goal failed"
  grep -q 'tests/tools/outbox-check' "$dir/log" || fail "make $goal does not build the checker"
  if grep -E 'tests/(unit|integration|fuzz|bench|faults)/|echo "  (CC|LINK)' "$dir/log" | cut -c1-200; then fail "make $goal builds more than it runs, or tells of it"; fi
done
for unit in "$root"/lib/systemd/system/*.service; do
  grep -qx 'ExecStart=/opt/outboxd/bin/outboxd run' "$unit" || fail "$unit starts another program"
  if grep -n '@[a-z]*@' "$unit"; then fail "$unit has a mark of its template"; fi
  # Whole sentences: what the template keeps for one unit is not the half of one.
  if grep -nE '^# .*[^.:]$|^# [a-z]' "$unit"; then fail "$unit has half a sentence"; fi
  head -n 1 "$unit" | grep -q '^# [A-Z]' || fail "$unit does not begin with what it is"
done
grep -qx 'EnvironmentFile=/etc/outboxd/outboxd.env' "$root/lib/systemd/system/outboxd.service" || fail "no EnvironmentFile"
grep -qx 'EnvironmentFile=-/etc/outboxd/%i.env' "$root/lib/systemd/system/outboxd@.service" || fail "no EnvironmentFile for instances"
"$root/bin/outboxd" --version | grep -q '^outboxd ' || fail "what was installed does not start"

# The page and the completions know every option that --help shows.
commands=$("$root/bin/outboxd" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ -n "$commands" ] || fail "--help lists no command"
for command in $commands; do
  grep -qx "\.It Cm $command" "$root/share/man/man1/outboxd.1" || fail "the manual page leaves $command out"
  "$root/bin/outboxd" "$command" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' >"$dir/options"
  [ -s "$dir/options" ] || fail "$command --help lists no option"
  while read -r option; do
    grep -q "^\.It Fl \\\\-$option\( \|$\)" "$root/share/man/man1/outboxd.1" || fail "the manual page leaves --$option out"
    grep -q -- "--${option}[=[]" "$root/share/zsh/site-functions/_outboxd" || fail "zsh's completion leaves --$option out"
  done <"$dir/options"
done

"$root/bin/outbox-consume" --version | grep -q '^outbox-consume ' || fail "outbox-consume does not start"
"$root/bin/outbox-consume" --help | sed -n 's/^  --\([a-z-]*\).*/\1/p' >"$dir/options"
[ -s "$dir/options" ] || fail "outbox-consume --help lists no option"
while read -r option; do
  grep -q "^\.It Fl \\\\-$option\( \|$\)" "$root/share/man/man1/outbox-consume.1" || fail "outbox-consume(1) leaves --$option out"
  grep -q -- "--${option}[=[]" "$root/share/zsh/site-functions/_outbox-consume" || fail "zsh's completion leaves --$option out"
done <"$dir/options"
while read -r name; do
  grep -q "\.Nm $name\( ,\)\?$" "$root/share/man/man3/outbox.3" || fail "outbox(3) leaves $name out"
done < <(sed -n 's/^OUTBOX_[A-Z]* .*[ *]\(outbox_[a-z0-9_]*\)(.*/\1/p' include/outbox.h)

if command -v mandoc >/dev/null; then
  # Style is about the width of source lines and about pages that this machine has not got.
  for page in "$root"/share/man/man*/*; do
    mandoc -Tlint -Wwarning "$page" || fail "mandoc is not content with $page"
  done
fi
if command -v man >/dev/null; then
  for page in "$root"/share/man/man*/*; do
    said=$(LC_ALL=C.UTF-8 man --warnings -E UTF-8 -l -Tutf8 "$page" 2>&1 >/dev/null)
    [ -z "$said" ] || fail "man warns of $page: $said"
  done
fi
if command -v zsh >/dev/null; then
  for file in "$root"/share/zsh/site-functions/*; do
    zsh -n "$file" || fail "zsh cannot read $file"
  done
fi
# bash's completion, asked as bash asks it.  complete_line WORDS... prints what is offered for the last word.
# shellcheck disable=SC1091 # made at build time
source "$root/share/bash-completion/completions/outboxd"
# shellcheck disable=SC1091
source "$root/share/bash-completion/completions/outbox-consume"
complete_line() {
  COMP_WORDS=("$@")
  COMP_CWORD=$((${#COMP_WORDS[@]} - 1))
  COMPREPLY=()
  "_${1//-/_}" 2>/dev/null
  echo "${COMPREPLY[*]}"
}
expect() {
  local want=$1 got
  shift
  got=$(complete_line "$@")
  [ "$got" = "$want" ] || fail "completing '$*' offers '$got', not '$want'"
}
for command in $commands; do expect "$command" outboxd "$command"; done
expect "--version" outboxd --v
expect "--lanes" outboxd run --lan
expect "--log-level --log-format" outboxd run --log
expect "--plain" outboxd init --pl
expect "" outboxd run --pl
expect "json text" outboxd run --log-format ""
expect "json" outboxd run --log-format j
expect "json text" outboxd run --log-format =
expect "text" outboxd run --log-format = t
expect "5ms 5s 5m 5h 5d" outboxd run --poll-interval 5
expect "5ms 5m" outboxd run --poll-interval 5m
expect "8MiB" outboxd run --max-write-bytes 8M
expect "yes no" outboxd run --until-empty =
expect "--lanes" outboxd run --until-empty --lan
expect "" outboxd run --lanes ""
expect "" outboxd nonsense --lan
expect "--group" outbox-consume --gr
expect "skip block" outbox-consume --group x --on-parked ""
expect "5ms 5s 5m 5h 5d" outbox-consume --retry-max 5
touch "$dir/metrics.prom"
expect "$dir/metrics.prom" outboxd run --metrics-file "$dir/met"

run_make install PREFIX="$dir/real"

if command -v systemd-analyze >/dev/null; then
  for unit in outboxd.service outboxd@.service; do
    file=$dir/real/lib/systemd/system/$unit
    systemd-analyze verify --man=no "$file" >"$dir/log" 2>&1 || {
      cat "$dir/log" >&2
      fail "systemd does not take $unit"
    }
    if grep "$unit" "$dir/log"; then fail "systemd warns of $unit"; fi
    # Exposure in tenths, 0 is best: the hardening has not been lost.
    systemd-analyze security --offline=yes --threshold=20 "$file" >"$dir/log" 2>&1 || {
      tail -n 3 "$dir/log" >&2
      fail "$unit is less protected than it was"
    }
  done
fi
run_make uninstall PREFIX="$dir/real"

run_make uninstall DESTDIR="$dir/stage" PREFIX=/opt/outboxd
run_make uninstall DESTDIR="$dir/loud" PREFIX=/opt/outboxd
left=$(find "$dir/stage" "$dir/loud" "$dir/real" ! -type d 2>/dev/null) || true
[ -z "$left" ] || fail "uninstall leaves $left"
for directory in share/doc/outboxd share/outboxd; do
  [ ! -d "$root/$directory" ] || fail "uninstall leaves $directory"
done

echo "test-install: ok"
