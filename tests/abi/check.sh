#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Programs that were linked with the released libraries run with those of BUILD: abidiff compares them with
# tests/abi/LIBRARY.abi. What was added is listed: functions, members at the end of a struct, enumerators. All else is an
# error. Prints a line like Check's.
#   check.sh BUILD
#   check.sh BUILD write    writes tests/abi/LIBRARY.abi anew; gpushm-contributing(7) says when
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$1

command -v abidw >/dev/null || {
	echo "skipped: no abidw and abidiff (Debian's abigail-tools)"
	exit 0
}
readelf -S "$build/libgpushm.so" | grep -q '\.debug_info' || {
	echo "skipped: $build/libgpushm.so was built without -g"
	exit 0
}

# Of the public headers alone, and without what changes with each build.
mkdir "$stage/include"
# shellcheck disable=SC2046 # a list of files
cp $(make -s --no-print-directory BUILD="$build" print-HEADERS) client/gpushm_load.h "$stage/include/"
cat >"$stage/private" <<'INI'
[suppress_function]
  name_regexp = ^gpushm_private_
  drop = true
INI
# abi_of LIBRARY FILE
abi_of() {
	abidw --headers-dir "$stage/include" --drop-private-types --exported-interfaces-only --suppressions "$stage/private" \
		--no-show-locs --no-corpus-path --no-comp-dir-path --no-elf-needed --no-parameter-names --no-write-default-sizes \
		--type-id-style hash "$build/$1.so" | grep -v "<elf-symbol name='gpushm_private_" >"$2"
}

# compatible BEFORE AFTER: prints what was added, or the complaint.
compatible() {
	abidiff --leaf-changes-only --harmless --no-show-locs "$1" "$2" >"$stage/report"
	[ $(($? & 3)) -eq 0 ] && awk -f tests/abi/additions.awk "$stage/report"
}

# A library of two versions: planted NAME FLAG...
planted() {
	cc -g -shared -fPIC -Wl,-soname,planted.so "${@:2}" -o "$stage/$1.so" -x c - <<'C'
#include <stddef.h>
#include <stdint.h>
struct planted {
	size_t struct_size;
#ifdef WIDER
	uint64_t first;
#else
	uint32_t first;
#endif
#ifdef PADDED
	uint32_t in_padding;
#endif
#ifdef GROWN
	uint64_t at_end;
#endif
};
enum choice {
	ONE = 1,
#ifdef GROWN
	TWO = 2,
#endif
};
int planted_take(const struct planted *p, enum choice c)
{
	return p && c;
}
#ifndef SHRUNK
int planted_more(void)
{
	return 0;
}
#endif
C
}
is_found() {
	planted before && planted after "$1" && ! compatible "$stage/before.so" "$stage/after.so"
}
passes() {
	planted before -DSHRUNK && planted after -DGROWN && compatible "$stage/before.so" "$stage/after.so"
}

for library in libgpushm libgpushm-load; do
	if [ "${2-}" = write ]; then
		abi_of $library tests/abi/$library.abi || exit 1
		continue
	fi
	check "what $library is" abi_of $library "$stage/$library.abi"
	check "$library serves programs of the release" compatible tests/abi/$library.abi "$stage/$library.abi"
	grep -E "^  \[A\] |insertion|, at offset |' value '|^'" "$stage/report" | sed "s/^/added to $library: /"
done
[ "${2-}" != write ] || exit 0
check "an addition passes" passes
check "a function that is gone is found" is_found -DSHRUNK
check "another type of a member is found" is_found -DWIDER
check "a member in the padding is found" is_found -DPADDED
end_of_checks
