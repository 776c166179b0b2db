#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The manual pages are good mdoc: mandoc and groff have no warning about them, both render them for
# a terminal of 80 columns without a wider line, and a page of ours that another one names exists.
# Pages of other projects need not be installed here. The files of the source that the pages name
# exist, too; test_X.c stands for any.
set -u
cd "$(dirname "$0")/../.." || exit 1
export LC_ALL=C.UTF-8

found=$(mktemp) || exit 1
trap 'rm -f "$found"' EXIT

# wide TOOL PAGE: reports lines of more than 80 characters on standard input.
wide() {
	grep -nE '^.{81,}' | sed "s|^|$2: $1 renders more than 80 columns: line |" >>"$found"
}

if command -v mandoc >/dev/null; then
	for page in man/*.[1-8]; do
		mandoc -Tlint -W style "$page" 2>/dev/null | grep -v 'referenced manual not found' >>"$found"
		mandoc -Tutf8 "$page" 2>/dev/null | sed 's/.\x08//g' | wide mandoc "$page"
	done
else
	echo "manuals: mandoc is not installed; its half is skipped"
fi

# On 80 columns man(1) of man-db has groff set lines of 78. A table that is too wide is a warning.
if command -v groff >/dev/null; then
	for page in man/*.[1-8]; do
		groff -k -mandoc -Tutf8 -P-cbou -rLL=78n -rLT=78n -ww "$page" 2>>"$found" | wide groff "$page"
	done
else
	echo "manuals: groff is not installed; its half is skipped"
fi

for page in man/*.[1-8]; do
	sed -n 's/^\.Xr \(gpushm[^ ]*\) \([1-8]\).*/man\/\1.\2/p' "$page" | sort -u |
		while read -r ours; do
			[ -f "$ours" ] || echo "$page: refers to $ours, which does not exist" >>"$found"
		done
done

# Each lock of the library and of the relay stands in the page that has their order.
grep -hoE '\bLOCK_[A-Z_]+' client/lib/base/locks.h client/relay/locks.h | while read -r lock; do
	grep -q "Dv $lock\$" man/gpushm-internals.7 || echo "man/gpushm-internals.7: has no $lock" >>"$found"
done

# The two pages with what no driver promises have it word by word.
grep -oE 'X\([a-z]+, FACT|"[^"]*",' proto/facts.h | sed 's/^X(\(.*\), FACT$/\1/; s/^"\(.*\)",$/\1/' | while read -r text; do
	for page in man/gpushmctl.1 man/gpushm-internals.7; do
		grep -qE "^(\.It Li )?$text\$" "$page" || echo "$page: has no \"$text\" of proto/facts.h" >>"$found"
	done
done

for page in man/*.[1-8]; do
	grep -oE '\b(proto|daemon|client|tests|systemd|man)/[a-zA-Z0-9_/.-]*\.(c|h|py|sh|proto|md|sym|pyi|conf|[1-8])(\.in)?\b' "$page" |
		grep -v '/test_X\.c$' | sort -u |
		while read -r file; do
			[ -e "$file" ] || echo "$page: names $file, which does not exist" >>"$found"
		done
done

cat "$found"
[ ! -s "$found" ]
