#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Runs test programs, several at a time, and counts what Check says of them.
#   tests/run.sh [--results FILE] [-j N] [--] PART [--under 'valgrind ...'] [VAR=VALUE]... PROGRAM... [-- PART ...]
#   tests/run.sh --sum FILE
# A program is a word of the command line and may have arguments in it. Programs start in the order
# in which they are given, and each must have its own sockets, files and daemons. What a program
# prints is shown when it has failed, or always with V=1. A part gets one line when its last program
# ends; a program that takes longer than SLOW seconds gets one, too. Counts are appended to FILE,
# with the first failure; --sum adds them up, says which program failed why, and then fails.
# What passed, and with what, is appended to FILE.ran: a part, a product, a version and the day in each line,
# for tests/compatibility.py. A test that uses a product says so by a line like "ran: NumPy 2.4.6".
set -u -m
SLOW=${SLOW:-10}

sum() {
	awk '{ p += $2; f += $3; s += $4 }
	     $3 > 0 { print "failed: " $1; for (i = 7; i <= NF; i++) printf "%s%s", i == 7 ? "   " : " ", $i; if (NF > 6) print "" }
	     END { printf "%d passed, %d failed, %d skipped\n", p, f, s; exit f > 0 || p == 0 }' "$1"
}

at_once=1
results=/dev/null
while :; do
	case ${1-} in
	--sum)
		sum "$2"
		exit
		;;
	-j)
		at_once=$2
		shift 2
		;;
	--results)
		results=$2
		shift 2
		;;
	*) break ;;
	esac
done

# A test may be slow under a sanitizer on a busy machine: Check's limit of 4 seconds must not decide it.
export CK_DEFAULT_TIMEOUT=60 CK_TIMEOUT_MULTIPLIER=4

# One element for each program.
part_of=() settings_of=() under_of=() program_of=()
declare -A left passed failed skipped began
parts=()
while [ $# -gt 0 ]; do
	if [ "$1" = -- ]; then shift; fi
	part=$1 settings=() under=
	parts+=("$part") left[$part]=0 passed[$part]=0 failed[$part]=0 skipped[$part]=0
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do
		if [ "$1" = --under ]; then
			under=$2
			shift
		elif [[ $1 =~ ^[[:upper:]_]+= ]]; then
			settings+=("$1")
		else
			part_of+=("$part") settings_of+=("${settings[*]}") under_of+=("$under") program_of+=("$1")
			left[$part]=$((left[$part] + 1))
		fi
		shift
	done
done

# No time limit of ours decides a test: a daemon under a sanitizer may be slow.
export GPUSHM_RECONNECT_MS=60000
folder=$(mktemp -d)
declare -A running=() started=()
end_all() {
	for pid in "${!running[@]}"; do
		echo "$(name_of "${running[$pid]}") was still running"
		kill -TERM -- "-$pid"
	done 2>/dev/null
	exit 1
}
trap 'rm -rf "$folder"' EXIT
trap end_all INT TERM HUP

name_of() {
	local words
	read -ra words <<<"${program_of[$1]}"
	local name=${words[0]##*/}
	case $name in make | env | python*) name=${words[-1]##*/} ;; esac
	echo "${part_of[$1]}:$name"
}

# Hundredths of a second.
now() {
	local t=${EPOCHREALTIME//[^0-9]/} # in some languages with a comma
	echo "${t%????}"
}
seconds() { printf '%d.%d s' $(($1 / 100)) $(($1 / 10 % 10)); }

# start I: with job control, so that each program has a process group, and its signals as a shell gives them.
start() {
	local words under settings
	read -ra words <<<"${program_of[$1]}"
	read -ra under <<<"${under_of[$1]}"
	read -ra settings <<<"${settings_of[$1]}"
	: "${began[${part_of[$1]}]:=$(now)}"
	started[$1]=$(now)
	# Behind nohup or "&" some signals are ignored, and a test that sends one to itself would wait for ever.
	env --default-signal=HUP,INT,QUIT,TERM "${settings[@]}" "${under[@]}" "${words[@]}" >"$folder/$1" 2>&1 </dev/null &
	running[$!]=$1
}

# ended I STATUS: counts, and tells.
ended() {
	local out=$folder/$1 part=${part_of[$1]} name took checks failures skips why=
	name=$(name_of "$1") took=$(($(now) - started[$1]))
	# "66%: Checks: 3, Failures: 1, Errors: 0"; a test that can't run here prints "skipped: why".
	read -r checks failures < <(awk -F'[:,] *' '/^[0-9]+%: Checks: / { c += $3; f += $5 + $7 } END { print c + 0, f + 0 }' "$out")
	skips=$(grep -c '^skipped: ' "$out")
	# A program that counts nothing is one test.
	if [ "$checks" -eq 0 ] && [ "$skips" -eq 0 ]; then checks=1; fi
	if [ "$2" -ne 0 ] && [ "$failures" -eq 0 ]; then
		echo "$name ended with status $2" >>"$out"
		failures=1
	fi
	# A skipped check is one that Check counted, or a program that ran none.
	checks=$((checks - failures - skips))
	if [ "$checks" -lt 0 ]; then checks=0; fi
	if [ "$failures" -ne 0 ]; then why=$(grep -m 1 -E '^[^ ]+:[0-9]+:[FE]:|^FAILED |^E  ' "$out"); fi
	echo "$name $checks $failures $skips $(seconds $took) $why" >>"$results"
	passed[$part]=$((passed[$part] + checks))
	failed[$part]=$((failed[$part] + failures))
	skipped[$part]=$((skipped[$part] + skips))
	left[$part]=$((left[$part] - 1))
	# pytest's lines name the test; the reasons are enough here.
	sed -nE 's/^skipped: ([^ ]+::[^ ]+: Skipped: )?/skipped: /p' "$out" >>"$folder/skipped.$part"
	if [ "$failures" -ne 0 ] || [ -n "${V-}" ]; then
		echo "== $name, $(seconds $took)"
		cat "$out"
	elif [ $took -gt $((SLOW * 100)) ]; then
		echo "   $name: $checks passed, $(seconds $took)"
	fi
	if [ "$failures" -eq 0 ] && [ "$checks" -gt 0 ]; then sed -n "s/^ran: /$part /p" "$out" >>"$folder/ran"; fi
	rm "$out"
	[ "${left[$part]}" -ne 0 ] || end_part "$part"
}

# The machine, as "ran: " lines of a program are. A driver is one of a GPU's parts alone: elsewhere nothing has used it.
machine() {
	awk -F'[="]+' -v part="$1" '/^ID=/ { id = $2 } /^VERSION_ID=/ { version = $2 }
		END { print part, toupper(substr(id, 1, 1)) substr(id, 2), version ? version : "unstable" }' /etc/os-release
	uname -r | sed "s/-.*//; s/^/$1 Linux /"
	getconf GNU_LIBC_VERSION | sed "s/^/$1 /"
	sed -n "s/^#define CUDA_VERSION \([0-9]*\)0\([0-9]\)0$/$1 cuda.h \1.\2/p" "${CUDA_INCLUDE:-/usr/include}/cuda.h" 2>/dev/null
	case $1 in gpu*) sed -n "s/^NVRM version:.*Kernel Module[^0-9]*\([0-9.]*\) .*/$1 driver \1/p" /proc/driver/nvidia/version 2>/dev/null ;; esac
}

end_part() {
	if [ "$results" != /dev/null ]; then
		[ "${failed[$1]}" -ne 0 ] || [ "${passed[$1]}" -eq 0 ] || machine "$1" >>"$folder/ran"
		[ ! -e "$folder/ran" ] || sort -u "$folder/ran" | sed "s/\$/ $(date -u +%F)/" >>"$results.ran"
		rm -f "$folder/ran"
	fi
	echo "== $1: ${passed[$1]} passed, ${failed[$1]} failed, ${skipped[$1]} skipped, $(seconds $(($(now) - began[$1])))"
	sort "$folder/skipped.$1" | uniq -c | while read -r n why; do echo "   $why$([ "$n" = 1 ] || echo " ($n times)")"; done
}

for ((next = 0; next < ${#program_of[@]} || ${#running[@]} > 0; )); do
	while ((${#running[@]} < at_once && next < ${#program_of[@]})); do
		start $next
		next=$((next + 1))
	done
	wait -n -p pid
	status=$?
	if [ -z "${running[${pid:-0}]-}" ]; then continue; fi
	i=${running[$pid]}
	unset "running[$pid]"
	ended "$i" $status
done
for part in "${parts[@]}"; do
	[ "${failed[$part]}" -eq 0 ] || exit 1
done
