#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The library exports every function that gpushm.h declares, and nothing else; client/libgpushm.sym
# lets nothing else through.
set -u
cd "$(dirname "$0")/../.." || exit 1
library=${BUILD:-build}/libgpushm.so.0

[ -f "$library" ] || {
	echo "symbols: no $library; make it first" >&2
	exit 1
}
declared=$(cc -E -P -I. -x c client/gpushm.h | grep -o '\bgpushm_[a-z0-9_]*(' | tr -d '(' | sort -u)
exported=$(nm -D --defined-only "$library" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort -u)
bad=0
while read -r name; do
	echo "client/gpushm.h declares $name(), which $library does not export"
	bad=1
done < <(comm -23 <(echo "$declared") <(echo "$exported"))
while read -r name; do
	echo "$library exports $name, which client/gpushm.h does not declare"
	bad=1
done < <(comm -13 <(echo "$declared") <(echo "$exported"))
if grep -v '^[[:space:]]*[/*]' client/libgpushm.sym | grep -oE '[A-Za-z_*]+[a-z0-9_*]*;' |
	grep -vE '^(gpushm_[a-z0-9_*]*|\*);$'; then
	echo "client/libgpushm.sym: a symbol that is not gpushm_*"
	bad=1
fi
exit $bad
