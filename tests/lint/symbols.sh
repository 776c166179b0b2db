#!/bin/bash
# SPDX-License-Identifier: MIT
#
# A library exports every function that its header declares, and nothing else; its .sym file names each of them, and
# nothing else. Over all products, a function that another file can call has a name that no other one has. What a _private.h declares has a version node of its own. The Debian packages list each symbol once.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${BUILD:-build}
bad=0

# declared HEADERS: the functions of these files alone, not of what they include.
declared() {
	# shellcheck disable=SC2086
	cat $1 | grep -vE '^#(include|pragma once)|^typedef' | cc -E -P -x c - | grep -v '^[[:space:]]' | grep -oE '\bgpushm_[a-z0-9_]*\(' | tr -d '(' | sort -u
}
# exported LIBRARY: symbols, with the version's name after the @.
exported() {
	nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { sub("@@", "@", $3); print $3 }' | sort
}
# mapped SYM: what is to be exported, in the same form.
mapped() {
	awk '/\{$/ { node = $1 } /^(global|local):/ { global = /global/ } /^\t.*;$/ && global { sub(";", "@" node, $1); print $1 }' "$1" | sort
}
# names LIBRARY GREP-ARGUMENTS: of the symbols that grep selects.
names() {
	local library=$1
	shift
	exported "$library" | grep "$@" | sed 's/@.*//' | sort -u
}
compare() { # HEADERS LIBRARY GREP-ARGUMENTS
	local headers=$1 library=$2 name
	shift 2
	[ -f "$library" ] || {
		echo "symbols: no $library; make it first" >&2
		exit 1
	}
	while read -r name; do
		echo "$headers: it declares $name(), which $library does not export"
		bad=1
	done < <(comm -23 <(declared "$headers") <(names "$library" "$@"))
	while read -r name; do
		echo "$library exports $name, which $headers does not declare"
		bad=1
	done < <(comm -13 <(declared "$headers") <(names "$library" "$@"))
}

# listed FILE LIBRARY: dpkg-gensymbols would complain, minutes later. What has the version in its node is a pattern there.
listed() {
	if ! diff <(sed -n 's/^ \([^( ][^ ]*\) .*/\1/p' "$1" | sort) \
		<(nm -D --defined-only --with-symbol-versions "$2" | grep -v 'PRIVATE_[0-9]' | awk '{ sub("@@", "@", $3); print $3 ~ /@/ ? $3 : $3 "@" $3 }' | sort); then
		echo "$1: < what it lists, > what $2 exports"
		bad=1
	fi
}

# The linker says nothing of a name in the .sym file that no function has, and a pattern there would hide what is new.
for name in libgpushm libgpushm-load; do
	if ! diff <(mapped "$build/gen/$name.sym") <(exported "$build/$name.so"); then
		echo "client/$name.sym: < what it names, > what is exported"
		bad=1
	fi
done
compare "$(make -s --no-print-directory BUILD="$build" print-HEADERS)" "$build/libgpushm.so" -v '@GPUSHM_PRIVATE$'
compare client/gpushm_private.h "$build/libgpushm.so" '@GPUSHM_PRIVATE$'
compare client/gpushm_load.h "$build/libgpushm-load.so" -v PRIVATE_
compare client/gpushm_load_private.h "$build/libgpushm-load.so" PRIVATE_
listed systemd/debian/libgpushm1.symbols "$build/libgpushm.so"
listed systemd/debian/libgpushm-load1.symbols "$build/libgpushm-load.so"
# Of each source that is built here; main() and the codes that one source is compiled to are not counted.
make -s --no-print-directory BUILD="$build" print-PRODUCT_SRC print-PYTHON_SRC | tr ' ' '\n' | sed -n "s|\(.*\)\.c$|$build/obj/\1.o|p" | while read -r object; do
	[ ! -f "$object" ] || nm --defined-only "$object" | awk '$2 == "T" { print $3 }'
done | sort | uniq -d | grep -vx main >"$build/.twice"
if [ -s "$build/.twice" ]; then
	echo "functions of one name in two files: $(tr '\n' ' ' <"$build/.twice")"
	bad=1
fi
for map in client/*.sym; do
	if grep -v '^[[:space:]]*[/*]\|@version@' "$map" | grep -oE '[A-Za-z_*]+[a-z0-9_*]*;' | grep -vE '^gpushm_[a-z0-9_]*;$'; then
		echo "$map: a symbol that is not gpushm_*"
		bad=1
	fi
done
exit $bad
