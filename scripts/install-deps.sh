#!/bin/bash
# Installs the Debian packages that outboxd needs; the one list of them.
#
#   install-deps.sh build   to compile
#   install-deps.sh [test]  and to run the tests and the demo (default)
#   install-deps.sh bench   and to measure, with plots
#   install-deps.sh deb     to make and try the Debian package
#   install-deps.sh ecosystems   and to run the examples in other languages (make test-ecosystems)
#   install-deps.sh lint    and for make lint and .ci/run
#
# Quick, and open to any user, when nothing is missing.  Starts no PostgreSQL, Redis or Prometheus service and creates no
# cluster: the tests bring up private ones.
set -euo pipefail

BUILD_PACKAGES=(gcc libc6-dev make pkg-config binutils libpq-dev libhiredis-dev libjansson-dev uthash-dev)
TEST_PACKAGES=(libcmocka-dev postgresql postgresql-contrib pgbouncer redis-server redis-tools prometheus python3 python3-psycopg2 faketime procps ca-certificates)
BENCH_PACKAGES=(gnuplot-nox)
DEB_PACKAGES=(debhelper dpkg-dev fakeroot lintian debootstrap)
ECOSYSTEM_PACKAGES=(php-cli php-pgsql php-redis php-illuminate-database php-illuminate-console php-illuminate-events
  python3-redis ruby golang-go)
# Where Node.js comes from elsewhere, npm comes with it, and Debian's own would be in its way.
command -v npm >/dev/null || ECOSYSTEM_PACKAGES+=(nodejs npm)
LINT_PACKAGES=(git clang clang-tidy clang-format libclang-rt-14-dev cppcheck shellcheck valgrind mandoc zsh systemd)

group=${1:-test}
packages=("${BUILD_PACKAGES[@]}")
case $group in
build) ;;
test) packages+=("${TEST_PACKAGES[@]}") ;;
deb) packages+=("${DEB_PACKAGES[@]}") ;;
ecosystems) packages+=("${TEST_PACKAGES[@]}" "${ECOSYSTEM_PACKAGES[@]}") ;;
bench) packages+=("${TEST_PACKAGES[@]}" "${BENCH_PACKAGES[@]}") ;;
lint) packages+=("${TEST_PACKAGES[@]}" "${LINT_PACKAGES[@]}" "${DEB_PACKAGES[@]}") ;;
*)
  echo "install-deps: build, test, bench, deb, ecosystems or lint, not \"$group\"" >&2
  exit 2
  ;;
esac

if ! command -v dpkg-query >/dev/null || ! command -v apt-get >/dev/null; then
  # Elsewhere the names differ; whoever builds there brings the libraries.
  exit 0
fi

installed=$(dpkg-query -W -f '${db:Status-Status} ${Package}\n' "${packages[@]}" 2>/dev/null | sed -n 's/^installed //p' || true)
missing=()
for package in "${packages[@]}"; do
  grep -qxF "$package" <<<"$installed" || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
  echo "install-deps: these packages are missing and only root can install them: ${missing[*]}" >&2
  echo "install-deps: run 'scripts/install-deps.sh $group' as root, or 'make DEPS=no' if you have them from elsewhere" >&2
  exit 1
fi

echo "install-deps: installing ${missing[*]}" >&2

# While packages are unpacked: no service starts, no PostgreSQL cluster is made.
policy=/usr/sbin/policy-rc.d
cluster_conf=/etc/postgresql-common/createcluster.d/outboxd-build.conf
made=()
cleanup() { [ ${#made[@]} -eq 0 ] || rm -f "${made[@]}"; }
trap cleanup EXIT
trap 'exit 1' INT TERM HUP
if [ ! -e "$policy" ]; then
  made+=("$policy")
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod 0755 "$policy"
fi
if [[ " ${missing[*]} " == *" postgresql "* ]] && [ ! -e "$cluster_conf" ]; then
  made+=("$cluster_conf")
  mkdir -p "${cluster_conf%/*}"
  printf 'create_main_cluster = false\n' >"$cluster_conf"
fi

export DEBIAN_FRONTEND=noninteractive
install() {
  apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-confold -o DPkg::Lock::Timeout=300 \
    "${missing[@]}" >&2
}
# The lists on the machine may be missing or old: then fetch them and try again.
if ! install; then
  apt-get update -q -o DPkg::Lock::Timeout=300 >&2
  install
fi
