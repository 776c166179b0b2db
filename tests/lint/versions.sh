#!/bin/sh
# SPDX-License-Identifier: MIT
#
# VERSION and SOVERSION are numbers of the Makefile. Programs, libraries, wheels, Debian packages and images are given them when
# they are built. This script compares the files that have to repeat them.
set -u
cd "$(dirname "$0")/../.." || exit 1

version=$(sed -n 's/^VERSION := //p' Makefile)
soversion=$(sed -n 's/^SOVERSION := //p' Makefile)
bad=0

# same FILE WHAT WANTED FOUND: FOUND are lines, all of which must be WANTED.
same() {
	if [ -z "$4" ]; then
		echo "$1: has no $2"
		bad=1
	fi
	for found in $4; do
		[ "$found" != "$3" ] || continue
		echo "$1: $2 is $found, but $3 in the Makefile"
		bad=1
	done
}

spec=systemd/rpm/gpushm.spec
same client/gpushm.h "the version" "$version" \
	"$(sed -n 's/^#define GPUSHM_VERSION_\(MAJOR\|MINOR\|PATCH\) //p' client/gpushm.h | paste -sd .)"
same $spec "the version" "$version" "$(sed -n 's/^Version: *//p' $spec)"
same $spec "the version of its last change" "$version" "$(sed -n '/^%changelog/,$s/^\* .* - \([0-9.]*\)-[0-9]*$/\1/p' $spec | head -n 1)"
same $spec "the library's number" "$soversion" "$(sed -n 's/^%package -n libgpushm//p' $spec)"
same systemd/debian/control "the library's number" "$soversion" "$(sed -n 's/^Package: libgpushm\(-load\)\?\([0-9]\)/\2/p' systemd/debian/control)"
same systemd/debian "the library's number in a file's name" "$soversion" \
	"$(find systemd/debian -name 'libgpushm*.symbols' | sed 's/.*[a-z]\([0-9]*\)\.symbols/\1/')"
same NEWS.md "its first heading" "$version" "$(sed -n 's/^## \([0-9.]*\) (.*)$/\1/p' NEWS.md | head -n 1)"
same proto/gpushm.proto "the example of a version" "$version" "$(sed -n 's/.*"libgpushm \([0-9.]*\)".*/\1/p' proto/gpushm.proto)"
for page in gpushm.3 gpushm-operations.7 gpushm-contributing.7; do
	same man/$page "an example of the version" "$version" "$(sed -n 's/^\.Dq \([0-9]*\.[0-9]*\.[0-9]*\) \.$/\1/p
		s/.*gpushm:\([0-9][0-9.]*[0-9]\).*/\1/p; s/.*newTag: \([0-9.]*\)$/\1/p; s/.*DEB_VERSION=\([0-9.]*\).*/\1/p' man/$page)"
done
# A version that is written there would be another one than the Makefile's, which setup.py reads.
grep -qx 'dynamic = \["version"\]' client/python/pyproject.toml || {
	echo "client/python/pyproject.toml: version is not dynamic"
	bad=1
}

# later FILE VERSIONS: none is above VERSION. Nothing can have come with a release that is not there yet.
later() {
	[ -n "$2" ] || same "$1" "version of a function" "" ""
	for since in $2; do
		[ "$(printf '%s\n' "$since" "$version" | sort -V | tail -n 1)" != "$version" ] || continue
		echo "$1: $since is later than $version of the Makefile"
		bad=1
	done
}
for file in client/*.sym; do
	later "$file" "$(sed -n 's/^LIBGPUSHM\(_LOAD\)\?_\([0-9.]*\) {$/\2/p' "$file")"
done
for file in systemd/debian/*.symbols; do
	later "$file" "$(sed -n 's/^ .* \([0-9][0-9.]*\)$/\1/p' "$file" | sort -u)"
done
exit $bad
