#!/bin/sh
# SPDX-License-Identifier: MIT
#
# How long functions and files are: no function above 80 lines, nine of ten under 40, a median of at
# most 14; no file above 800 lines. Functions are counted from their name to their closing brace.
set -u
cd "$(dirname "$0")/../.." || exit 1

bad=0
for file in $(git ls-files --cached --others --exclude-standard -- '*.c' '*.h'); do
	[ -f "$file" ] || continue
	lines=$(wc -l <"$file")
	if [ "$lines" -gt 800 ]; then
		echo "$file: $lines lines; 800 are allowed"
		bad=1
	fi
done

if ! ctags --version 2>/dev/null | grep -q '^Universal Ctags'; then
	echo "sizes: the length of functions is not checked (no Universal Ctags)"
	exit $bad
fi
git ls-files --cached --others --exclude-standard -- '*.c' | while read -r file; do
	[ -f "$file" ] && echo "$file"
done | ctags -L - -f - --languages=C --kinds-C=f --fields=+ne --sort=no |
	sed -n 's/^\([^\t]*\)\t\([^\t]*\)\t.*line:\([0-9]*\).*end:\([0-9]*\).*/\2 \3 \4 \1/p' |
	grep -v '_fn$' | awk '
		{ length_ = $3 - $2 + 1; print length_, $1 ":" $2, $4 }' | sort -n | awk '
		{ lengths[NR] = $1 }
		$1 > 80 { print $2 ": " $3 "() has " $1 " lines; 80 are allowed"; bad = 1 }
		END {
			if (NR == 0)
				exit 1
			median = lengths[int((NR + 1) / 2)]
			ninth = lengths[int(NR * 0.9 + 0.999999)]
			printf "sizes: %d functions, median %d, nine of ten have at most %d, longest %d\n",
				NR, median, ninth, lengths[NR]
			exit bad || median > 14 || ninth >= 40
		}' || bad=1
exit $bad
