#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The examples of gpushm(3), gpushm_handle(3) and gpushm_stream(3) compile without a warning, run
# against a daemon of their own and print what the page says. Needs the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build}
folder=$(mktemp -d) || exit 1
daemon=
trap 'if [ -n "$daemon" ]; then kill "$daemon" && wait "$daemon"; fi; rm -rf "$folder"' EXIT
bad=0

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

for page in man/gpushm.3 man/gpushm_handle.3 man/gpushm_stream.3; do
	# What mdoc has escaped: \e is a backslash, \& nothing.
	sed -n '/^\.Sh EXAMPLES/,/^\.Sh ERRORS/p' "$page" | sed -n '/^\.Bd -literal/,/^\.Ed/p' |
		sed -e '/^\.[BE]d/d' -e 's/\\&//g' -e 's/\\e/\\/g' >"$folder/example.c"
	expected=$(sed -n 's/^It prints \(.*\)\.$/\1/p' "$page")
	${CC:-cc} -Wall -Wextra -Werror -Iclient -o "$folder/example" "$folder/example.c" \
		-L"$build" -Wl,-rpath,"$(realpath "$build")" -lgpushm || {
		echo "$page: its example does not compile"
		bad=1
		continue
	}
	said=$("$folder/example" 2>&1 | sed 's/ *$//')
	if [ -z "$expected" ] || [ "$said" != "$expected" ]; then
		echo "$page: its example prints \"$said\"; the page says \"$expected\""
		bad=1
	fi
done
exit $bad
