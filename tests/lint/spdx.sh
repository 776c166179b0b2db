#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every file that people write says its licence in its first lines.
set -u
cd "$(dirname "$0")/../.." || exit 1

bad=0
for file in $(git ls-files --cached --others --exclude-standard); do
	[ -f "$file" ] || continue
	case $file in
	# Data, the licence itself, prose, and tools' files that have no comments.
	LICENSE | *.md | .gitignore | .clang-format | tests/data/*.npy | tests/data/journal/* | tests/fuzz/corpus/*.tar.xz) continue ;;
	*.json | */py.typed | *.golden | *.expected | *.npy | *.bin | *.abi) continue ;;
	esac
	if ! head -n 5 "$file" | grep -q 'SPDX-License-Identifier: MIT'; then
		echo "$file: no SPDX-License-Identifier in its first five lines"
		bad=1
	fi
done
exit $bad
