#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every source passes gcc and clang with all warnings as errors, tests and examples included; the
# public headers also pass as C++, and on their own.
set -u
cd "$(dirname "$0")/../.." || exit 1
make=${MAKE:-make}
build=${BUILD:-build}

"$make" -s BUILD="$build" "$build/gen/gpushm.pb-c.h" "$build/gen/gpushm_records.h" "$build/gen/records_table.h" "$build/gen/python_tables.h" \
	"$build/gen/smaller/structs.h" "$build/gen/larger/structs.h" || exit 1
flags=$("$make" -s --no-print-directory BUILD="$build" print-lint_cflags) || exit 1
left_out=$("$make" -s --no-print-directory BUILD="$build" print-LEFT_OUT) || exit 1
bad=0
for compiler in gcc clang; do
	command -v $compiler >/dev/null || {
		echo "warnings: no $compiler here"
		continue
	}
	git ls-files --cached --others --exclude-standard -- '*.c' | while read -r file; do
		case " $left_out " in
		*" $file "*) continue ;;
		esac
		[ -f "$file" ] && echo "$file"
	done | eval xargs -n 8 -P "$(nproc)" $compiler "$flags" -Iclient -Werror -fsyntax-only || bad=1
done
for language in c c++; do
	"$make" -s --no-print-directory BUILD="$build" print-HEADERS | tr ' ' '\n' | sed 's|.*/\(.*\)|#include <\1>|' |
		cc -x $language -Iclient -I"$build/gen" -Wall -Wextra -Wpedantic -Werror -fsyntax-only - 2>&1 || {
		[ $language = c++ ] && ! command -v c++ >/dev/null && {
			echo "warnings: no C++ compiler here"
			continue
		}
		bad=1
	}
done
exit $bad
