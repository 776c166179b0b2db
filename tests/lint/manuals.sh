#!/bin/sh
# SPDX-License-Identifier: MIT
#
# mandoc has nothing to say about the manuals. Pages that they refer to and that are not installed
# here are no fault, unless they are said to be ours.
set -u
cd "$(dirname "$0")/../.." || exit 1

command -v mandoc >/dev/null || {
	echo "manuals: skipped (no mandoc)"
	exit 0
}
bad=0
for page in man/*.[1-8]; do
	said=$(mandoc -Tlint -W style "$page" 2>/dev/null | grep -v 'referenced manual not found')
	if [ -n "$said" ]; then
		echo "$said"
		bad=1
	fi
	sed -n 's/^\.Xr \(gpushm[^ ]*\) \([1-8]\).*/man\/\1.\2/p' "$page" | sort -u | {
		missing=0
		while read -r ours; do
			[ -f "$ours" ] && continue
			echo "$page: refers to $ours, which does not exist"
			missing=1
		done
		exit $missing
	} || bad=1
done
exit $bad
