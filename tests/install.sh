#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Installs into a folder, builds a stranger's program against what is there with pkg-config, runs the
# installed programs, uninstalls, and looks for what was left. Prints a line like Check's.
#   tests/install.sh BUILD
set -u
build=$1
stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
checks=0
failures=0

check() {
	checks=$((checks + 1))
	if ! "${@:2}" >"$stage/.out" 2>&1; then
		failures=$((failures + 1))
		echo "failed: $1"
		cat "$stage/.out"
	fi
}

no_files_left() {
	[ -z "$(find "$stage/tree" -type f -o -type l)" ]
}

stranger() {
	cat >"$stage/stranger.c" <<'C'
#include <gpushm.h>
#include <stdio.h>
int main(void)
{
	struct gpushm *c = 0;
	int r = gpushm_connect("/nonexistent/socket", &c);
	printf("%s: %s\n", gpushm_version(), gpushm_error());
	return r < 0 ? 0 : 1;
}
C
	export PKG_CONFIG_PATH=$stage/tree/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage/tree
	# shellcheck disable=SC2046 # flags are words
	"$@" -Wall -Werror -o "$stage/stranger" "$stage/stranger.c" $(pkg-config --cflags --libs gpushm) &&
		LD_LIBRARY_PATH=$stage/tree/usr/lib "$stage/stranger"
}

make -s BUILD="$build" DESTDIR="$stage/tree" PREFIX=/usr libdir=/usr/lib install >"$stage/.log" 2>&1 || cat "$stage/.log"
check "gpushmd runs from where it is installed" "$stage/tree/usr/bin/gpushmd" --version
check "the installed configuration is good" "$stage/tree/usr/bin/gpushmd" --check-config --config "$stage/tree/etc/gpushm/gpushmd.conf"
check "gpushmctl finds its library" "$stage/tree/usr/bin/gpushmctl" --version
read -ra compiler <<<"${CC:-cc}"
check "a C program builds with pkg-config and runs" stranger "${compiler[@]}"
if command -v c++ >/dev/null; then
	check "the header is good C++" c++ -x c++ -fsyntax-only -Wall -Werror "$stage/tree/usr/include/gpushm.h"
fi
check "every manual is installed" test "$(find "$stage/tree" -path '*/man/*' -type f -size +1 | wc -l)" -eq "$(find man -type f | wc -l)"
check "a function's name leads to gpushm(3)" grep -qx '.so man3/gpushm.3' "$stage/tree/usr/share/man/man3/gpushm_open.3"
if command -v man >/dev/null; then
	check "man finds a function" man -M "$stage/tree/usr/share/man" -w gpushm_open
fi
make -s BUILD="$build" DESTDIR="$stage/tree" PREFIX=/usr libdir=/usr/lib uninstall >"$stage/.log" 2>&1 || cat "$stage/.log"
check "uninstall leaves no file" no_files_left
if [ $checks -gt 0 ]; then percent=$((100 * (checks - failures) / checks)); fi
echo "$percent%: Checks: $checks, Failures: $failures, Errors: 0"
[ $failures -eq 0 ]
