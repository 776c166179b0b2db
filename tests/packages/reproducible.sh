#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The packages of BUILD/deb, built once more in another folder, with another umask, time zone and language, have the same
# bytes. Prints a line like Check's.
#   reproducible.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
build=$1
export DEB_BUILD_OPTIONS=nocheck
again=$(mktemp -d)
trap 'rm -rf "$again"' EXIT

(umask 027 && env TZ=Pacific/Auckland LC_ALL=C.UTF-8 make deb BUILD="$build/again/and/again") >"$again/log" 2>&1 || {
	tail -n 30 "$again/log"
	exit 1
}
same=0 differ=0
for package in "$build"/deb/*.deb; do
	if cmp "$package" "$build/again/and/again/deb/${package##*/}"; then
		same=$((same + 1))
	else
		differ=$((differ + 1))
		if command -v diffoscope >/dev/null; then
			diffoscope --max-report-size 4000 "$package" "$build/again/and/again/deb/${package##*/}"
		fi
	fi
done
rm -rf "$build/again"
echo "$((100 * same / (same + differ)))%: Checks: $((same + differ)), Failures: $differ, Errors: 0"
[ $differ -eq 0 ]
