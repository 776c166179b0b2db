#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The README's tours of the shell and of C run as they are printed, over a daemon of their own, and
# give what the page says. Python's are tests/python/test_examples.py's. Needs the build folder.
# shellcheck disable=SC2016 # what is quoted is the tour's to expand
set -u
cd "$(dirname "$0")/../.." || exit 1

build=$(realpath "${BUILD:-build}")
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

# section TITLE: up to the next one.
section() { sed -n "/^## $1\$/,/^## /p" README.md; }
# Commands are indented by four; what they print, by eight.
commands() { sed '/^```/,/^```/d' | grep '^    [^ ]' | sed 's/^    //'; }

{ section 'Five minutes in C'; section 'Frame after frame: streams'; } | awk -v folder="$folder" '
	/^```c/ { getline; name = folder "/" $2; on = 1; next }
	/^```/ { on = 0 }
	on { print > name }'
expected=$(section 'Five minutes in C' | sed -n 's/.* # \([0-9 ]*\)$/\1/p')

# As printed, but for the build and its place, and where the files lie that the page has in /tmp. A
# reader takes longer than a daemon to start.
{
	echo 'trap "kill \$(jobs -p)" EXIT'
	section 'Five minutes in the shell' | commands | sed -e '/^make$/d' \
		-e '/^gpushmd /a until gpushmctl status >"$FOLDER/status" 2>\&1; do kill -0 %1; sleep 0.05; done'
	echo 'cmp "$FOLDER/b2.npy" tests/data/b2.npy'
	echo 'until [ "$(gpushmctl ls --json=short | grep -c digits/model)" = 0 ]; do sleep 0.05; done'
	section 'Five minutes in C' | commands | sed -e 's|put\.c|$FOLDER/put.c|' -e 's|get\.c|$FOLDER/get.c|' \
		-e 's|-o \([a-z]*\)|-o $FOLDER/\1|g' -e 's|\./|$FOLDER/|g' -e 's|-Lbuild|-L$BUILD -Wall -Werror|'
	section 'Frame after frame: streams' | commands | sed -e 's|ticks\.c|$FOLDER/ticks.c|' \
		-e 's|-o ticks|-o $FOLDER/ticks|' -e 's|\./|$FOLDER/|'
	echo 'kill %1; wait %1; trap - EXIT'
} | sed -e "s|/tmp/|\$FOLDER/|g" -e 's|\$PWD/build|$BUILD|g' >"$folder/tour"

export FOLDER="$folder" BUILD="$build"
export XDG_RUNTIME_DIR="$folder"
if ! timeout 120 bash -e -u -m "$folder/tour" >"$folder/said" 2>"$folder/errors"; then
	cat "$folder/said" "$folder/errors"
	echo "README.md: what it tells to type fails"
	exit 1
fi
grep -qx "$expected" "$folder/said" && [ -n "$expected" ] && exit 0
cat "$folder/said"
echo "README.md: put and get do not print \"$expected\""
exit 1
