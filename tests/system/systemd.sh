#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The daemon under real systemd, as it is installed: activation, sandbox, and what lives through
# kill, restart into another build, and the watchdog. systemd_boot.sh gives the machine for it.
# Prints a line like Check's.
#   systemd.sh BUILD
set -u

cd "$(dirname "$0")/../.." 2>/dev/null || true
# shellcheck source=tests/system/booted.sh
. "$([ "$1" = --inside ] && echo /test || echo tests/system)/booted.sh"
shown=NFileDescriptorStore
units=(gpushmd gpushm-relay)

outside() {
	boot_needs make
	new_stage
	make -s BUILD="$1" DESTDIR="$stage" PREFIX=/usr install >"$stage/.log" 2>&1 || {
		cat "$stage/.log"
		exit 1
	}
	printf '[pool host]\nkind=host\nsize=64M\n' >"$stage/etc/gpushm/gpushmd.conf"
	boot
}

# ---- inside ----

main_pid() {
	systemctl show gpushmd -p MainPID --value
}

# exports LINE: gpushm-exporter serves that line.
exports() {
	exec 3<>/dev/tcp/127.0.0.1/19400 || return 1
	printf 'GET /metrics HTTP/1.0\r\n\r\n' >&3
	grep -q "^$1$" <&3
}

exporter_is_nobody_else() {
	local pid
	pid=$(systemctl show gpushm-exporter -p MainPID --value)
	[ "$(ps -o uid= -p "$pid")" -ge 61184 ] && grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" &&
		grep -q '^CapEff:[[:space:]]*0*$' "/proc/$pid/status"
}

# relay_offers NAME: gpushm-relay lists that buffer.
relay_offers() {
	exec 3<>/dev/tcp/127.0.0.1/19401 || return 1
	printf 'GET /v1/buffers HTTP/1.0\r\n\r\n' >&3
	grep -q "\"name\":\"$1\"" <&3
}

relay_is_confined() {
	local pid
	pid=$(systemctl show gpushm-relay -p MainPID --value)
	[ "$(ps -o user:20= -p "$pid")" = gpushm-relay ] && grep -q '^Seccomp:[[:space:]]*2$' "/proc/$pid/status" &&
		grep -q '^CapEff:[[:space:]]*0*$' "/proc/$pid/status"
}

# What its user pulls from another machine, which is this one.
relay_pulls() {
	printf '[pull copy]\nsource=http://127.0.0.1:19401/v1/buffers/offered\nmode=0444\n' >>/etc/gpushm/gpushm-relay.conf &&
		systemctl restart gpushm-relay && gpushmctl wait --timeout=20 copy &&
		gpushmctl stat copy | grep -q ' gpushm-relay:'
}

# Faster than the watchdog's timer, which each of them begins anew, and for longer than WatchdogSec=.
often_restarted() {
	local pid end=$((SECONDS + 5))
	pid=$(main_pid)
	while [ $SECONDS -lt $end ]; do gpushmctl restart || return 1; done
	shows MainPID "$pid"
}

another_pid() {
	[ "$(main_pid)" != "$1" ]
}

active_with_another_pid() {
	shows ActiveState active && another_pid "$1"
}

runs_as_gpushm() {
	[ "$(ps -o user= -p "$(main_pid)")" = gpushm ] &&
		grep -q '^CapEff:[[:space:]]*0*$' "/proc/$(main_pid)/status" &&
		grep -q '^NoNewPrivs:[[:space:]]*1$' "/proc/$(main_pid)/status"
}

# Root in the service's mounts: it is they and not the user that refuse.
cannot_write() {
	! nsenter -t "$(main_pid)" -m -r touch "$1/gpushm-test" && touch "$1/gpushm-test" && rm "$1/gpushm-test"
}

filters_calls() {
	grep -q '^Seccomp:[[:space:]]*2$' "/proc/$(main_pid)/status"
}

# As a user of the machine who is in no group of the service.
as_stranger() {
	setpriv --reuid=65529 --regid=65529 --clear-groups "$@"
}

# The pool has 64 MiB.
takes_its_share() {
	as_stranger gpushmctl create --size=32M stranger && as_stranger gpushmctl rm stranger &&
		! as_stranger gpushmctl create --size=33M stranger 2>/test/refused &&
		grep -q max-pool-share /test/refused
}

id_of() {
	gpushmctl stat --json "$1" | grep -o '"id": *"[0-9]*"' | head -n 1
}

same_buffer() {
	gpushmctl get model /test/got.npy && cmp /test/w1.npy /test/got.npy && [ "$(id_of model)" = "$id" ]
}

is_held() {
	gpushmctl ls --holders --json | grep -q "\"pid\": *${holder}[,}]"
}

still_held() {
	kill -0 "$holder" 2>/dev/null && is_held
}

is_not_held() {
	! is_held
}

hold_ends() {
	exec {hold_in}>&-
	wait "$holder" && soon is_not_held
}

# Another program file, and another version in it, of the same length.
other_build() {
	local version
	version=$(gpushmd --version | cut -d ' ' -f 2)
	LC_ALL=C sed "s/${version//./\\.}/${version%?}$1/g" /usr/bin/gpushmd >/usr/bin/gpushmd.new &&
		chmod 755 /usr/bin/gpushmd.new && mv /usr/bin/gpushmd.new /usr/bin/gpushmd &&
		[[ $(gpushmd --version) == "gpushmd ${version%?}$1 "* ]]
}

answers_as_other_build() {
	gpushmctl status --json | grep -q "$1\""
}

refuses_a_wrong_configuration() {
	cp /etc/gpushm/gpushmd.conf /test/good.conf
	echo 'sise=1G' >>/etc/gpushm/gpushmd.conf
	local failed=0
	systemctl reload gpushmd || failed=1
	cp /test/good.conf /etc/gpushm/gpushmd.conf
	[ $failed = 1 ] && soon wrong_key_is_told && systemctl reload gpushmd
}

wrong_key_is_told() {
	journalctl -q --no-pager -u gpushmd | grep 'gpushmd.conf:4: .*sise'
}

killed_daemon_returns() {
	local pid
	pid=$(main_pid)
	kill "-$1" "$pid" && soon active_with_another_pid "$pid"
}

# The program takes over from itself, or from another, in the process that systemd knows.
replaced_in_place() {
	local pid
	pid=$(main_pid)
	"$@" && soon answers && [ "$(main_pid)" = "$pid" ] && shows NRestarts "$restarts" && soon shows ActiveState active
}

answers() {
	gpushmctl status >/dev/null
}

refused_in_place() {
	local pid
	pid=$(main_pid)
	mv /usr/bin/gpushmd /usr/bin/gpushmd.away
	! gpushmctl restart && [ "$(main_pid)" = "$pid" ] && gpushmctl status
	local ended=$?
	mv /usr/bin/gpushmd.away /usr/bin/gpushmd
	return $ended
}

# The kernel kills for want of memory whatever stands in a group with less than it needs.
oom_kill_v1() {
	mkdir -p /run/oom && mount -t cgroup -o memory memory /run/oom && mkdir /run/oom/gpushm-test || return 1
	echo 64K >/run/oom/gpushm-test/memory.limit_in_bytes && echo "$1" >/run/oom/gpushm-test/cgroup.procs
	# Whatever it is asked, it needs a page for.
	for i in {1..100}; do timeout 1 gpushmctl create --size=4096 "oom/$i" && timeout 1 gpushmctl rm "oom/$i"; done
	soon grep -q '^oom_kill [1-9]' /run/oom/gpushm-test/memory.oom_control && soon rmdir /run/oom/gpushm-test
}

oom_kill_v2() {
	systemctl set-property --runtime gpushmd MemoryMax=256K && soon another_pid "$1"
	systemctl set-property --runtime gpushmd MemoryMax=8G
}

oom_kills() {
	local pid
	pid=$(main_pid)
	"$1" "$pid" && soon active_with_another_pid "$pid"
}

check_oom() {
	local way=
	grep -qw memory /sys/fs/cgroup/cgroup.controllers && way=oom_kill_v2
	grep -q '^memory[[:space:]]*[1-9]' /proc/cgroups && way=oom_kill_v1
	[ -n "$way" ] || {
		echo "skipped: an OOM kill: no memory controller"
		return
	}
	check "killed for want of memory, the daemon comes back" oom_kills $way
	check "after that kill, the buffer is the same" same_buffer
	check "after that kill, the holder is listed" soon still_held
	check "others are killed before it" shows OOMScoreAdjust -500
	check "an OOM kill is a death as another" shows OOMPolicy continue
}

# A writer that dies leaves its buffer dirty, and the log says so.
writer_dies() {
	gpushmctl create --size=4096 frame && coproc WRITER { exec gpushmctl hold --write frame; } &&
		writer=$WRITER_PID && read -r -t 10 -u "${WRITER[0]}" _ && kill -KILL "$writer"
}

journal_tells() {
	journalctl -q -u gpushmd GPUSHM_NAME=frame "GPUSHM_PID=$writer" | grep -q .
}

# Everything that may happen to one buffer; its id is left in life.
lives_and_dies() {
	printf '[daemon]\naudit=yes\n' >>/etc/gpushm/gpushmd.conf && systemctl reload gpushmd || return 1
	gpushmctl create --size=4096 --shared life/new && gpushmctl mv life/new life/renamed &&
		gpushmctl get --raw life/renamed - >/dev/null || return 1
	life=$(gpushmctl stat --json life/renamed | grep -o '"id": *"[0-9]*"' | head -n 1 | tr -dc 0-9)
	coproc LIFE { exec gpushmctl hold --write life/renamed; } && local pid=$LIFE_PID
	read -r -t 10 -u "${LIFE[0]}" _ && gpushmctl rm life/renamed && kill -KILL "$pid"
}

# Each line that the audit writes is found by the buffer's id, in its order, and by nothing else.
life_is_in_the_journal() {
	local line expected=('created buffer "life/new"' 'published buffer "life/new"' 'closed buffer "life/new"'
		'renamed buffer "life/new" to "life/renamed"' 'opened for reading buffer "life/renamed"'
		'closed buffer "life/renamed"' 'opened for writing buffer "life/renamed"'
		'unlinked buffer "life/renamed"' 'died while it had buffer "life/renamed" open for writing'
		'buffer "life/renamed" is dirty' 'buffer "life/renamed" is freed')
	mapfile -t lines < <(journalctl -q --no-pager -o cat -u gpushmd GPUSHM_BUFFER="$life")
	printf '%s\n' "${lines[@]}"
	[ ${#lines[@]} = ${#expected[@]} ] || return 1
	for line in "${!expected[@]}"; do
		[[ ${lines[line]} == *"${expected[line]}"* ]] || return 1
	done
}

# journalctl -x explains a line of the audit, and of each other message.
catalog_explains() {
	journalctl --update-catalog && journalctl -q --no-pager -x -u gpushmd GPUSHM_BUFFER="$life" |
		grep -q 'Subject: User .* used, or may not use, a buffer'
}

inside() {
	check "systemd-sysusers makes the users" sh -c 'systemd-sysusers /usr/lib/sysusers.d/gpushm*.conf'
	check "the socket starts" systemctl start gpushmd.socket
	check "the socket alone starts no daemon" shows ActiveState inactive
	check "a client starts the service" gpushmctl status
	check "the service is active" shows ActiveState active
	check "the service tells when it is ready" shows Type notify
	check "it runs as gpushm without privileges" runs_as_gpushm
	check "ProtectSystem= is on" shows ProtectSystem strict
	check "MemoryDenyWriteExecute= is on" shows MemoryDenyWriteExecute yes
	check "its own memory is bounded" shows MemoryMax $((8 << 30))
	check "RemoveIPC= is on" shows RemoveIPC yes
	check "PrivateMounts= is on" shows PrivateMounts yes
	check "it can't write to /usr" cannot_write /usr
	check "it can't write to /etc" cannot_write /etc
	check "its system calls are filtered" filters_calls

	check "a user takes half of a pool, and not more" takes_its_share
	check "put" gpushmctl put /test/w1.npy model
	id=$(id_of model)
	check "the buffer has an id" test -n "$id"
	coproc HOLD { exec gpushmctl hold model; }
	holder=$HOLD_PID hold_in=${HOLD[1]}
	check "hold says so" read -r -t 10 -u "${HOLD[0]}" _
	check "the holder is listed" is_held

	check "killed, the daemon comes back" killed_daemon_returns KILL
	check "after the kill, the buffer is the same" same_buffer
	check "after the kill, the holder is listed" soon still_held

	check_oom
	restarts=$(systemctl show gpushmd -p NRestarts --value)
	check "the program takes over in place" replaced_in_place gpushmctl restart
	check "by a signal, too" replaced_in_place systemctl kill --signal=USR2 --kill-who=main gpushmd
	check "after that, the buffer is the same" same_buffer
	check "after that, the holder is listed" soon still_held
	check "there is another build" other_build "+"
	check "it takes over in place" replaced_in_place gpushmctl restart
	check "it answers" answers_as_other_build "+"
	check "a missing program does not take over" refused_in_place
	check "killed after that, the daemon comes back" killed_daemon_returns KILL
	check "after that death, the buffer is the same" same_buffer
	check "after that death, the holder is listed" soon still_held

	mkdir -p /run/systemd/system/gpushmd.service.d
	printf '[Service]\nWatchdogSec=2\nTimeoutAbortSec=2\n' >/run/systemd/system/gpushmd.service.d/test.conf
	check "there is another build" other_build "~"
	check "daemon-reload" systemctl daemon-reload
	check "restart into the other build" systemctl restart gpushmd
	check "the other build answers" answers_as_other_build "~"
	check "after the restart, the buffer is the same" same_buffer
	check "after the restart, the holder is listed" soon still_held

	check "reload" systemctl reload gpushmd
	check "after the reload, the service is active" shows ActiveState active
	check "reload fails where the configuration is wrong" refuses_a_wrong_configuration
	check "after that, the service is active" shows ActiveState active
	check "restarts that follow each other are no hang" often_restarted
	check "stopped, the daemon is replaced by the watchdog" killed_daemon_returns STOP
	check "after the watchdog, the buffer is the same" same_buffer
	check "after the watchdog, the holder is listed" soon still_held
	check "the holder ends well, and its lease with it" hold_ends

	check "a writer dies" writer_dies
	check "the journal tells of it in our fields" soon journal_tells
	check "a buffer lives and dies" lives_and_dies
	check "the journal has its whole life" soon life_is_in_the_journal
	check "the journal explains it" catalog_explains
	check "stop" systemctl stop gpushmd.service
	check "stop leaves nothing failed" shows Result success
	check "stopped, the daemon ended with status 0" shows ExecMainStatus 0
	if command -v gpushm-exporter >/dev/null; then
		check "the exporter starts without the daemon" systemctl start gpushm-exporter
		check "it asks the daemon, which the socket starts" soon exports "gpushm_up 1"
		check "it counts the daemon's buffers" exports 'gpushm_buffers{pool="host",state="shared"} [0-9]*'
		check "it has a user of its own" exporter_is_nobody_else
		check "stop the exporter" systemctl stop gpushm-exporter
		check "stop the daemon once more" systemctl stop gpushmd.service
	fi
	if command -v gpushm-relay >/dev/null; then
		check "the relay's configuration is good" gpushm-relay --check-config
		check "the relay starts without the daemon" systemctl start gpushm-relay
		check "a buffer that it may open" gpushmctl put --mode=0444 /test/w1.npy offered
		check "it offers the buffer" soon relay_offers offered
		check "it has a user of its own" relay_is_confined
		check "it pulls, with that user" relay_pulls
		check "stop the relay" systemctl stop gpushm-relay
		check "the relay's socket starts it" systemctl start gpushm-relay.socket
		check "and it offers the buffer again" soon relay_offers offered
		check "what it has pulled stays" gpushmctl stat copy
		check "stop the relay and its socket" systemctl stop gpushm-relay.socket gpushm-relay.service
		check "nothing of it has failed" test "$(systemctl show gpushm-relay -p Result --value)" = success
		check "stop the daemon for the last time" systemctl stop gpushmd.service
	fi
	check "the socket starts it again" gpushmctl status
	report
}

case $1 in
--inside) inside ;;
*) outside "$1" ;;
esac
