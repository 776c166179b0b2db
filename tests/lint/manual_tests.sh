#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Each test that gpushm(7) names as the one that holds a guarantee exists.
set -u
cd "$(dirname "$0")/../.." || exit 1

names=$(sed -n 's/^\.Ic \([a-z0-9_]*_[a-z0-9_]*\).*/\1/p' man/gpushm.7)
[ -n "$names" ] || {
	echo "man/gpushm.7: names no test"
	exit 1
}
bad=0
for name in $names; do
	grep -rqE "START_TEST\($name\)|^def $name\(" tests --include='*.c' --include='*.py' && continue
	echo "man/gpushm.7: there is no test $name"
	bad=1
done
exit $bad
