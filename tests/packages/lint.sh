#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The packaging: lintian reads the Debian packages, and rpmlint the spec. The symbols files must be complete. Prints a
# line like Check's.
#   lint.sh BUILD            of packages that it builds in BUILD/lint, without tests
#   lint.sh BUILD --built    of those in BUILD/deb
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh

lintian_says_nothing() {
	lintian --allow-root --fail-on error,warning --no-tag-display-limit "$build"/deb/*.changes
}

# A new function belongs into systemd/debian/libgpushm1.symbols, with the version that has it first.
symbols_are_listed() {
	! grep -A20 '^dpkg-gensymbols: warning: some new symbols' "$build/deb.log"
}

rpmlint_says_nothing() {
	rpmlint -r systemd/rpm/gpushm.rpmlintrc systemd/rpm/gpushm.spec | tee /dev/stderr | grep -q ' 0 errors, 0 warnings'
}

# A builder that goes on when its first step was seen, and fails.
progress_is_shown() {
	local build=$stage/progress
	mkdir -p "$stage/bin" && cat >"$stage/bin/dpkg-buildpackage" <<-BUILDER && chmod +x "$stage/bin/dpkg-buildpackage"
		#!/bin/sh
		echo "   debian/rules override_dh_auto_build"
		for _ in \$(seq 100); do [ -e "$stage/seen" ] && exit 1; sleep 0.1; done
	BUILDER
	mkfifo "$stage/fifo"
	PATH=$stage/bin:$PATH systemd/packages.sh deb "$build" 0.0 2>"$stage/errors" >"$stage/fifo" &
	{ read -r _; read -r line; } <"$stage/fifo"
	[ "$line" = "packages: dh_auto_build" ] && touch "$stage/seen"
	! wait $! && grep "failed; all that it said is in $build/deb.log" "$stage/errors"
}

build=$1
if ! dpkg-checkbuilddeps systemd/debian/control 2>/dev/null; then
	echo "skipped: this machine lacks what systemd/debian/control asks for"
else
	if [ "${2-}" != --built ]; then
		build=$1/lint
		check "the packages are built" env DEB_BUILD_OPTIONS=nocheck make deb BUILD="$build"
	fi
	check "the symbols files have all functions" symbols_are_listed
	if command -v lintian >/dev/null; then
		check "lintian has no complaint" lintian_says_nothing
	else
		echo "skipped: there is no lintian"
	fi
fi
check "make deb shows what it does" progress_is_shown
check "a release is refused for each reason there is" tests/packages/release.sh
if [ "${2-}" != --built ]; then check "the source's archives and their list have the same bytes twice" tests/packages/reproducible.sh "$1" quick; fi
if command -v rpmlint >/dev/null; then
	check "rpmlint has no complaint" rpmlint_says_nothing
else
	echo "skipped: there is no rpmlint"
fi
[ "$build" = "$1" ] || rm -rf "$build"
end_of_checks
