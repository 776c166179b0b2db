# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: MIT
#
# For scripts that run once more, with --inside, in a machine of systemd_boot.sh, where they lie in /test. Each sources this.
# A script says in `shown` what it wants of `systemctl show gpushmd`, and in `units` whose journal, where a check fails.

skip() {
	echo "skipped: $*"
	exit 0
}

# ---- outside ----

# boot_needs PROGRAM...: what the machine needs, and these.
boot_needs() {
	local program
	[ "$(id -u)" = 0 ] || skip "systemd can be booted by root only"
	for program in /lib/systemd/systemd systemctl systemd-sysusers unshare nsenter pgrep "$@"; do
		command -v "$program" >/dev/null || skip "there is no $program"
	done
}

# new_stage: makes $stage, which becomes the root's folders, with their modes, and this script in it.
new_stage() {
	stage=$(mktemp -d)
	trap 'rm -rf "$stage"' EXIT
	chmod 755 "$stage"
	mkdir "$stage/test"
	cp "$0" tests/system/booted.sh tests/data/w1.npy "$stage/test"
}

# boot: runs the script inside, and ends as it does.
boot() {
	local status
	tests/system/systemd_boot.sh "$stage" "/test/$(basename "$0")" --inside >"$stage/.out" &
	child=$!
	trap 'kill $child; wait $child; exit 1' INT TERM HUP
	wait $child
	status=$?
	[ $status -ne 125 ] || skip "$(tr '\n' ' ' <"$stage/.out")"
	cat "$stage/.out"
	exit $status
}

# ---- inside ----

checks=0
failures=0

# check WHAT COMMAND...
check() {
	checks=$((checks + 1))
	if ! "${@:2}" >/test/out 2>&1; then
		failures=$((failures + 1))
		echo "failed: $1"
		cat /test/out
		systemctl show gpushmd -p "ActiveState,SubState,Result,NRestarts,$shown"
		journalctl -q --no-pager -n 20 "${units[@]/#/-u}"
	fi
}

# True before ten seconds are over.
soon() {
	local deadline=$((SECONDS + 10))
	until "$@"; do
		[ $SECONDS -lt $deadline ] || return 1
		sleep 0.05
	done
}

shows() {
	local is
	is=$(systemctl show gpushmd -p "$1" --value)
	[ "$is" = "$2" ] || {
		echo "$1 is $is, not $2"
		return 1
	}
}

# A line like Check's.
report() {
	echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
	[ $failures -eq 0 ]
}
