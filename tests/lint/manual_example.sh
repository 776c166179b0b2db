#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The example of gpushm(3) compiles without a warning, runs against a daemon of its own and prints
# what the page says. Needs the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build}
page=man/gpushm.3
folder=$(mktemp -d) || exit 1
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" && wait "$daemon"; fi; rm -rf "$folder"' EXIT

bad=0
# What mdoc has escaped: \e is a backslash, \& nothing.
sed -n '/^\.Sh EXAMPLES/,/^\.Sh ERRORS/p' "$page" |
	sed -n '/^\.Bd -literal/,/^\.Ed/p' | sed -e '/^\.[BE]d/d' -e 's/\\&//g' -e 's/\\e/\\/g' >"$folder/squares.c"
expected=$(sed -n 's/^It prints \(.*\)\.$/\1/p' "$page")
${CC:-cc} -Wall -Wextra -Werror -Iclient -o "$folder/squares" "$folder/squares.c" \
	-L"$build" -Wl,-rpath,"$(realpath "$build")" -lgpushm || {
	echo "$page: its example does not compile"
	exit 1
}

printf '[pool host]\nkind=host\nsize=1M\n' >"$folder/conf"
GPUSHM_SOCKET=$folder/sock
export GPUSHM_SOCKET
"$build/gpushmd" --config "$folder/conf" --socket "$GPUSHM_SOCKET" 2>"$folder/log" &
daemon=$!
tries=0
until "$build/gpushmctl" status >"$folder/status" 2>&1; do
	tries=$((tries + 1))
	[ $tries -lt 1000 ] || {
		cat "$folder/log" "$folder/status"
		exit 1
	}
	sleep 0.05
done
said=$("$folder/squares" 2>&1) || bad=1
if [ -z "$expected" ] || [ "$said" != "$expected" ]; then
	echo "$page: its example prints \"$said\"; the page says \"$expected\""
	bad=1
fi
exit $bad
