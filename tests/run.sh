#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs test programs one after the other, shows what they print, and counts what Check says of them.
#   tests/run.sh [--results FILE] [--under 'valgrind ...'] LABEL PROGRAM...
# Counts are appended to FILE; `tests/run.sh --sum FILE` adds them up and fails if a test failed.
set -u

sum() {
	awk '{ p += $2; f += $3; s += $4 }
	     $3 > 0 { print "failed: " $1 }
	     END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' "$1"
}

results=/dev/null
under=()
while :; do
	case ${1-} in
	--sum)
		sum "$2"
		exit
		;;
	--results)
		results=$2
		shift 2
		;;
	--under)
		read -ra under <<<"$2"
		shift 2
		;;
	*) break ;;
	esac
done
label=$1
shift
# No time limit of ours decides a test: a daemon under a sanitizer may be slow.
export GPUSHM_RECONNECT_MS=60000
bad=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
for program in "$@"; do
	name=$label:$(basename "${program%% *}")
	echo "== $name"
	# A program may be given with arguments, as one word.
	read -ra words <<<"$program"
	"${under[@]}" "${words[@]}" 2>&1 | tee "$out"
	status=${PIPESTATUS[0]}
	# "66%: Checks: 3, Failures: 1, Errors: 0"; a test that can't run here prints "skipped: why".
	read -r checks failures < <(awk -F'[:,] *' '/^[0-9]+%: Checks: / { c += $3; f += $5 + $7 } END { print c + 0, f + 0 }' "$out")
	skipped=$(grep -c '^skipped: ' "$out")
	if [ "$status" -ne 0 ] && [ "$failures" -eq 0 ]; then
		echo "$name: ended with status $status"
		failures=1
	fi
	if [ "$failures" -ne 0 ]; then bad=1; fi
	# A skipped check is one that Check counted, or a program that ran none.
	passed=$((checks - failures - skipped))
	echo "$name $((passed > 0 ? passed : 0)) $failures $skipped" >>"$results"
done
exit $bad
