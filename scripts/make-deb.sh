#!/bin/bash
# Builds the Debian package; make deb calls it.
#
# Environment: BUILD    the build directory; the package comes to $BUILD/deb (build)
#              VERSION  what the program says of itself, from the Makefile
set -euo pipefail
cd "$(dirname "$0")/.."

BUILD=${BUILD:-build}
VERSION=${VERSION:?run make deb}
fail() {
  echo "make-deb: $*" >&2
  exit 1
}

packaged=$(dpkg-parsechangelog -l packaging/debian/changelog -S Version)
[ "$packaged" = "$VERSION" ] || fail "packaging/debian/changelog is at $packaged, the Makefile at $VERSION: bring them together"

# From a copy, since dpkg wants debian/ at the top, and leaves files there.
out=$(realpath -m "$BUILD")/deb
source=$out/outboxd-$VERSION
rm -rf "$out"
mkdir -p "$source"
cp -R Makefile README.md CHANGELOG.md LICENSE docs include packaging scripts sql src "$source"
cp -R packaging/debian "$source/debian"
# A make that calls this one has settings of its own, which are not for the package.
unset MAKEFLAGS MAKEOVERRIDES MFLAGS CC CFLAGS LDFLAGS CPPFLAGS SAN BUILD DESTDIR PREFIX
(cd "$source" && dpkg-buildpackage --build=binary --no-sign "-j${DEB_JOBS:-2}") >"$out/build.log" 2>&1 || {
  tail -n 40 "$out/build.log" >&2
  fail "dpkg-buildpackage failed; all it said is in $out/build.log"
}
rm -rf "$source"
package=$(echo "$out"/outboxd_"$VERSION"_*.deb)
if command -v lintian >/dev/null; then
  # Root's own builds are fine here, and there is no bug report to close.
  lintian --allow-root --fail-on error,warning --suppress-tags initial-upload-closes-no-bugs "$package" ||
    fail "lintian is not content"
else
  echo "make-deb: there is no lintian to look at it" >&2
fi
echo "$package"
