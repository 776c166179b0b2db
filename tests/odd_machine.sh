#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The tests on a machine that is unlike all others, in namespaces of its own: nothing changes on this one. Users and
# groups have odd names, the host's name is as long as it may be, the language is Turkish, the clock is 45 minutes off
# the hour, new files are private, /run is full, there is no IPv6, and no other user may enter the folder that the
# clone of HEAD is in. Then the same tests, as a user who has no name, no home and no language.
#   tests/odd_machine.sh                     make check, as root and as that user
#   tests/odd_machine.sh unit host python    make suite-unit suite-host suite-python, likewise
#   ODD=user tests/odd_machine.sh            as that user alone; ODD=root as root alone
# Packages for Python come from the network or from pip's settings before the namespaces are entered. Prints a line
# like Check's.
set -u
cd "$(dirname "$0")/.." || exit 1
# No Python of root's own.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
nameless=4711

skip() {
	echo "skipped: an odd machine: $*"
	exit 0
}

# ---- inside ----

# cover FILE: what is on standard input lies over that file.
cover() {
	cat >"$folder/${1##*/}" && chmod 644 "$folder/${1##*/}" && mount --bind "$folder/${1##*/}" "$1"
}

# Names that adduser would refuse, but a directory service has. root, and all others below 1000, stay as they are.
name_users() {
	local odd=('odd.user' "machine\$" '_1001' 'a-name-of-32-characters-and-no-mo') i
	{
		awk -F: '$3 < 1000 || $3 > 1003' /etc/passwd
		for i in 0 1 2 3; do echo "${odd[i]}:x:100$i:100$i:Ödd, \"user\":/nonexistent:/bin/false"; done
	} | cover /etc/passwd && {
		awk -F: '$3 < 1000 || $3 > 1003' /etc/group
		for i in 0 1 2 3; do echo "${odd[3 - i]}:x:100$i:${odd[i]}"; done
	} | cover /etc/group
}

make_odd() {
	name_users && hostname "$(printf 'Odd-%.0s' {1..15})Name" || return 1
	# One inode, which is its root folder: nothing can be made there, not even by root.
	mount -t tmpfs -o nr_inodes=1,mode=755 tmpfs /run && ! touch /run/x 2>/dev/null || return 1
	if [ -d /proc/sys/net/ipv6 ]; then echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6 || return 1; fi
	ip link set lo up
}

# check NAME COMMAND...: runs it in the clone, and adds its tests to checks and failures.
check() {
	local status started=$SECONDS p f s
	rm -f build/results
	"${@:2}" >"$folder/out" 2>&1 </dev/null
	status=$?
	touch build/results
	read -r p f s < <(awk '{ p += $2; f += $3; s += $4 } END { print p + 0, f + 0, s + 0 }' build/results)
	# What failed before a test could.
	if [ $status -ne 0 ] && [ "$f" -eq 0 ]; then f=1; fi
	# Indented: tests/run.sh counts the lines that Check writes.
	if [ "$f" -ne 0 ]; then grep -vE '^  (CC|CXX|LD|GEN|PIP) ' "$folder/out" | sed 's/^/  /'; fi
	awk '$3 > 0 { print "failed, '"$1"': " $1 }' build/results
	echo "$1: $p passed, $f failed, $s skipped, $((SECONDS - started)) s"
	checks=$((checks + p + f)) failures=$((failures + f))
}

# inside FOLDER TARGET...
inside() {
	folder=$1
	make_odd && cd "$folder/closed/gpushm" || exit 125
	umask 077
	export TZ=Pacific/Chatham LOCPATH=$folder/locale
	checks=0 failures=0
	if [ "${ODD:-root}" = root ]; then
		check root env LC_ALL=tr_TR.UTF-8 LANG=xx_YY LANGUAGE=tr make -k "${@:2}"
	fi
	if [ "${ODD:-user}" = user ]; then
		chown -R "$nameless:$nameless" "$folder/closed" || exit 125
		check user setpriv --reuid=$nameless --regid=$nameless --clear-groups --inh-caps=-all \
			env -u XDG_RUNTIME_DIR -u USER -u LOGNAME HOME=/ LC_ALL=POSIX LANG=tr_TR.UTF-8 make -k "${@:2}"
	fi
	[ $checks -gt 0 ] || exit 125
	echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
	exit $((failures > 0))
}

[ "${1-}" != --inside ] || inside "${@:2}"

# ---- outside ----

namespaces=(--mount --uts --net --pid --fork --kill-child --mount-proc)
[ "$(id -u)" = 0 ] || skip "needs root"
unshare "${namespaces[@]}" true 2>/dev/null || skip "unshare may not make namespaces"
! getent passwd $nameless >/dev/null || skip "user $nameless has a name here"
targets=("${@/#/suite-}")
[ $# -gt 0 ] || targets=(check)
folder=$(mktemp -d -p "${TMPDIR:-/var/tmp}" gpushm-odd-XXXXXX)
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'exit 1' INT TERM HUP
chmod 755 "$folder"
mkdir "$folder/locale" && mkdir -m 700 "$folder/closed" || exit 1
localedef -i tr_TR -f UTF-8 "$folder/locale/tr_TR.UTF-8" || echo "no tr_TR.UTF-8 here: the language is C"
(umask 077 && git clone -q --no-local . "$folder/closed/gpushm" && make -sC "$folder/closed/gpushm" deps) >"$folder/log" 2>&1 || {
	cat "$folder/log"
	exit 1
}
cp "$0" "$folder/odd_machine.sh"
unshare "${namespaces[@]}" --propagation private "$folder/odd_machine.sh" --inside "$folder" "${targets[@]}" &
wait $!
status=$?
[ $status -ne 125 ] || skip "the namespaces can't be furnished"
exit $status
