#!/bin/sh
# SPDX-License-Identifier: MIT
#
# clang-format has nothing to change. Its versions disagree on details, so that only the one that
# the tree is formatted with has a say; elsewhere this is skipped.
set -u
cd "$(dirname "$0")/../.." || exit 1
wanted=14

tool=$(command -v clang-format-$wanted || command -v clang-format) || {
	echo "format: skipped (no clang-format)"
	exit 0
}
if ! "$tool" --version | grep -q "version $wanted\."; then
	echo "format: skipped ($("$tool" --version); the tree is formatted with version $wanted)"
	exit 0
fi
git ls-files --cached --others --exclude-standard -- '*.c' '*.h' | while read -r file; do
	[ -f "$file" ] && printf '%s\0' "$file"
done | xargs -0 "$tool" --dry-run -Werror
