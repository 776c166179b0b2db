#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Each test that gpushm-guarantees(7) names below a guarantee exists.
set -u
cd "$(dirname "$0")/../.." || exit 1

page=man/gpushm-guarantees.7
names=$(sed -n 's/^\.D1 Ic \([a-z0-9_]*_[a-z0-9_]*\)$/\1/p' $page)
[ -n "$names" ] || {
	echo "$page: names no test"
	exit 1
}
bad=0
for name in $names; do
	grep -rqE "START_TEST\($name\)|^def $name\(" tests --include='*.c' --include='*.py' && continue
	echo "$page: there is no test $name"
	bad=1
done
exit $bad
