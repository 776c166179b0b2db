#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The packaging: lintian reads Debian packages that are built for it in BUILD/lint, without tests, and rpmlint reads the
# spec. The symbols files must be complete. Prints a line like Check's.
#   lint.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1/lint
checks=0
failures=0

check() {
	checks=$((checks + 1))
	if ! "${@:2}" >"$build/out" 2>&1; then
		failures=$((failures + 1))
		echo "failed: $1"
		tail -n 50 "$build/out"
	fi
}

lintian_says_nothing() {
	lintian --allow-root --fail-on error,warning --no-tag-display-limit "$build"/deb/*.changes
}

# A new function belongs into systemd/debian/libgpushm0.symbols, with the version that has it first.
symbols_are_listed() {
	! grep -A20 '^dpkg-gensymbols: warning: some new symbols' "$build/deb.log"
}

rpmlint_says_nothing() {
	rpmlint -r systemd/rpm/gpushm.rpmlintrc systemd/rpm/gpushm.spec | tee /dev/stderr | grep -q ' 0 errors, 0 warnings'
}

same_version() {
	[ "$(sed -n 's/^Version: *//p' systemd/rpm/gpushm.spec)" = "$(sed -n 's/^VERSION := //p' Makefile)" ]
}

mkdir -p "$build"
if ! command -v dpkg-buildpackage >/dev/null || ! command -v dh >/dev/null; then
	echo "skipped: no packages without dpkg-buildpackage and debhelper"
else
	check "the packages are built" env DEB_BUILD_OPTIONS=nocheck make deb BUILD="$build"
	check "the symbols files have all functions" symbols_are_listed
	if command -v lintian >/dev/null; then
		check "lintian has no complaint" lintian_says_nothing
	else
		echo "skipped: there is no lintian"
	fi
fi
check "the spec has the version of the Makefile" same_version
if command -v rpmlint >/dev/null; then
	check "rpmlint has no complaint" rpmlint_says_nothing
else
	echo "skipped: there is no rpmlint"
fi
rm -rf "$build"
echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
