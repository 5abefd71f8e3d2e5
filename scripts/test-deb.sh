#!/bin/bash
# Installs the Debian package in a fresh Debian 12, tries it, purges it, and looks for what is left; make test-deb calls it.
#
# Environment: BUILD       the build directory; the package is in $BUILD/deb (build)
#              DEB_MIRROR  where packages come from (default: as the machine's own apt has it)
#
# Needs root, and a machine on which debootstrap works; else it says so and ends with status 77, which is neither good nor bad.
# The root without the package is kept in $BUILD/cache for the next time.
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=$(realpath -m "${BUILD:-build}")
SUITE=bookworm
skip() {
  echo "test-deb: skipped: $*" >&2
  exit 77
}
fail() {
  echo "test-deb: $*" >&2
  exit 1
}

package=$(echo "$BUILD"/deb/outboxd_*.deb)
[ -e "$package" ] || fail "there is no package in $BUILD/deb: run make deb"
[ "$(id -u)" -eq 0 ] || skip "only root can make a root directory"
command -v debootstrap >/dev/null || skip "there is no debootstrap: scripts/install-deps.sh deb"
# shellcheck disable=SC2016 # apt's own words
mirror=${DEB_MIRROR:-$(apt-get indextargets --format '$(SITE) $(RELEASE) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
  awk -v suite=$SUITE '$2 == suite && $3 == "main" { print $1; exit }')}
[ -n "$mirror" ] || skip "apt here knows no source of $SUITE; set DEB_MIRROR"

work=$(mktemp -d)
root=$work/root
# shellcheck disable=SC2317 # called by the trap
cleanup() { rm -rf --one-file-system "$work"; }
trap cleanup EXIT
trap 'exit 1' INT TERM HUP

base=$BUILD/cache/$SUITE-base.tar
if [ ! -e "$base" ]; then
  # Bare: what the package needs it has to bring by its dependencies.
  debootstrap --variant=minbase --include=ca-certificates,systemd "$SUITE" "$root" "$mirror" >"$work/debootstrap.log" 2>&1 || {
    tail -n 5 "$work/debootstrap.log" >&2
    skip "debootstrap does not work on this machine"
  }
  mkdir -p "${base%/*}"
  tar -C "$root" -cf "$base.$$" . && mv "$base.$$" "$base"
else
  mkdir "$root"
  tar -C "$root" -xf "$base"
fi
# The way to the mirror is the machine's own.
for file in /etc/resolv.conf /etc/hosts; do [ ! -e "$file" ] || cp -L "$file" "$root$file"; done
mkdir -p "$root/etc/apt/apt.conf.d"
cp /etc/apt/apt.conf.d/* "$root/etc/apt/apt.conf.d/" 2>/dev/null || true
rm -f "$root/etc/apt/apt.conf.d/"*docker*
printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
chmod 0755 "$root/usr/sbin/policy-rc.d"

in_root() { chroot "$root" /usr/bin/env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C DEBIAN_FRONTEND=noninteractive \
  ${http_proxy:+http_proxy="$http_proxy"} ${https_proxy:+https_proxy="$https_proxy"} "$@"; }
# Everything but what apt and dpkg remember for themselves, and logs.
list_files() {
  (cd "$root" && find . -xdev \( -path ./proc -o -path ./sys -o -path ./dev -o -path ./var/lib/dpkg -o -path ./var/lib/apt \
    -o -path ./var/cache -o -path ./var/log -o -path ./tmp -o -path ./var/lib/systemd -o -path ./run \) -prune -o -print | sort)
}
quietly() { "$@" >"$work/log" 2>&1 || {
  tail -n 20 "$work/log" >&2
  fail "failed: $*"
}; }

cp "$package" "$root/tmp/outboxd.deb"
quietly in_root apt-get update -q
# What it depends on goes first, so that the comparison is about the package alone.
depends=$(dpkg-deb -f "$package" Depends | sed 's/([^)]*)//g; s/|[^,]*//g; s/,/ /g')
# shellcheck disable=SC2086 # words
quietly in_root apt-get install -y -q --no-install-recommends $depends
list_files >"$work/before"

quietly in_root apt-get install -y -q --no-install-recommends /tmp/outboxd.deb
in_root outboxd --version
in_root outboxd run --help >/dev/null || fail "outboxd run --help fails"
in_root getent passwd outboxd >/dev/null || fail "there is no user outboxd"
for file in /usr/bin/outboxd /lib/systemd/system/outboxd.service /lib/systemd/system/outboxd@.service /etc/outboxd/outboxd.env \
  /usr/share/bash-completion/completions/outboxd /usr/share/zsh/vendor-completions/_outboxd; do
  [ -e "$root$file" ] || fail "the package has no $file"
done
scripts/check-links.sh "$root/usr/share/doc/outboxd" || fail "links of the package's documents lead nowhere"
for script in postgres-roles redis-user upgrade-to-partitioned; do
  in_root "/usr/share/outboxd/scripts/$script.sh" --help >/dev/null || fail "$script.sh does not start"
done
[ "$(stat -c '%a %U' "$root/etc/outboxd/outboxd.env")" = "600 root" ] || fail "others can read /etc/outboxd/outboxd.env"
grep -q '^ExecStart=/usr/bin/outboxd run$' "$root/lib/systemd/system/outboxd.service" || fail "the unit starts something else"
[ -z "$(find "$root/etc/systemd" -name 'outboxd*')" ] || fail "the unit is enabled before anybody has said where the servers are"
quietly in_root systemd-analyze verify --man=no /lib/systemd/system/outboxd.service
# As the user it will be: it starts, and says what it has no server for.
status=0
in_root setpriv --reuid=outboxd --regid=outboxd --clear-groups /usr/bin/outboxd init --database host=/nonexistent >"$work/log" 2>&1 ||
  status=$?
[ "$status" -eq 1 ] || fail "outboxd init without a server ended with $status"

# An upgrade to the same version keeps a changed configuration.
echo '# changed' >>"$root/etc/outboxd/outboxd.env"
quietly in_root apt-get install -y -q --reinstall --no-install-recommends /tmp/outboxd.deb
tail -n 1 "$root/etc/outboxd/outboxd.env" | grep -qx '# changed' || fail "an upgrade has replaced the configuration"
quietly in_root apt-get remove -y -q outboxd
[ -e "$root/etc/outboxd/outboxd.env" ] || fail "remove has taken the configuration"
[ ! -e "$root/usr/bin/outboxd" ] || fail "remove has left the program"
quietly in_root apt-get purge -y -q outboxd
if in_root getent passwd outboxd >/dev/null; then fail "purge has left the user"; fi
list_files >"$work/after"
# The files of users are there before and after; a backup of them is the tools' own.
diff <(grep -v '^\./etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-$' "$work/before") \
  <(grep -v '^\./etc/\(passwd\|group\|shadow\|gshadow\|subuid\|subgid\)-$' "$work/after") >"$work/diff" || {
  cat "$work/diff" >&2
  fail "purge leaves something behind, or takes too much"
}
echo "test-deb: installed, tried, reinstalled, removed and purged without a trace"
