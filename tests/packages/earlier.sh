#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The Debian packages of version 0.2 under real systemd, upgraded to those of BUILD/deb and back again, while clients of
# both versions, a stream and a relay are at work. tests/system/systemd_boot.sh gives the machine for it, and
# tests/earlier/version.sh the packages of 0.2. BUILD/deb is made anew if a file of the tree is newer. The longest opens of
# each change of daemons are printed, and decide nothing. Prints a line like Check's.
#   earlier.sh BUILD
set -u

cd "$(dirname "$0")/../.." 2>/dev/null || true
# shellcheck source=tests/system/booted.sh
. "$([ "$1" = --inside ] && echo /test || echo tests/system)/booted.sh"
# shellcheck source=tests/earlier/clients.sh
. "$([ "$1" = --inside ] && echo /test || echo tests/earlier)/clients.sh"
shown=MainPID
units=(gpushmd gpushm-relay)

# ---- outside ----

build_new_debs() {
	local deb
	deb=$(find "$build/deb" -name 'gpushmd_*.deb' 2>/dev/null)
	# shellcheck disable=SC2016 # for the inner shell
	[ -n "$deb" ] && [ -z "$(git ls-files -z | xargs -0 sh -c 'find "$@" -maxdepth 0 -newer "$0"' "$deb" 2>/dev/null)" ] && return
	env -u MAKEFLAGS -u MFLAGS -u MAKELEVEL "DEB_BUILD_OPTIONS=nocheck noautodbgsym parallel=$(nproc)" make -s BUILD="$build" deb
}

# side_for VERSION HEADERS LIBRARIES: it finds the library where the packages have it.
side_for() {
	cc -O1 -D_GNU_SOURCE -I"$2" -I"$build/gen" -o "$stage/test/side-$1" tests/earlier/side.c -L"$3" -lgpushm
}

outside() {
	boot_needs dpkg-deb dpkg-buildpackage dpkg-checkbuilddeps cc
	dpkg-checkbuilddeps systemd/debian/control 2>/dev/null || skip "the packages can't be built: dpkg-checkbuilddeps systemd/debian/control"
	build=$(realpath "$1")
	# shellcheck source=tests/earlier/version.sh
	. tests/earlier/version.sh
	needs_old "the upgrade from 0.2"
	new_stage
	if ! build_old_debs || ! build_new_debs; then exit 1; fi >"$stage/.log" 2>&1 || {
		tail -n 50 "$stage/.log"
		exit 1
	}
	mkdir "$stage/test"/{old,new,clients}
	cp "$tree"/build/deb/{gpushmd,gpushm-tools,gpushm-relay,libgpushm0,libgpushm-load0}_*.deb "$stage/test/old"
	cp "$build"/deb/{gpushmd,gpushm-tools,gpushm-relay,libgpushm1,libgpushm-load1}_*.deb "$stage/test/new"
	cp tests/earlier/clients.sh tests/data/b1.npy "$stage/test"
	cp "$old_root/usr/bin/gpushmctl" "$stage/test/ctl-old"
	cp "$build/gpushmctl" "$stage/test/ctl-new"
	side_for old "$old_root/usr/include" "$old_root"/usr/lib/*-linux-gnu && side_for new client "$build" || exit 1
	boot
}

# ---- inside: programs of a version ----

clients=/test/clients
export GPUSHM_SOCKET=/run/gpushm/gpushmd.sock
side() { timeout 120 "/test/side-$1" "$GPUSHM_SOCKET" "${@:2}"; }
ctl() { timeout 60 "/test/ctl-$1" "${@:2}"; }

# As apt does it without questions: a changed file of the configuration stays.
install_debs() { dpkg --force-confold -i "$@" </dev/null; }
runs() { ctl old status --json | grep -q "gpushmd $1\\."; }
is_in_place() { shows MainPID "$pid" && shows NRestarts 0; }

# ---- the relay, and one who reads from it all the time ----

# read_model TO: the model's bytes as the relay sends them. 2: it was not there, or was stopped before it had sent them all.
read_model() {
	local status key value length=-1
	{ exec 3<>/dev/tcp/127.0.0.1/19401; } 2>/dev/null || return 2
	printf 'GET /v1/buffers/llama HTTP/1.0\r\nHost: localhost\r\n\r\n' >&3
	{ read -r _ status _ <&3 && [ "$status" = 200 ]; } || { exec 3>&- && return 2; }
	while IFS=$': \r' read -r key value <&3 && [ -n "$key" ]; do
		[ "${key,,}" != content-length ] || length=$value
	done
	cat <&3 >"$1" 2>/dev/null
	exec 3>&-
	[ "$(stat -c %s "$1")" = "$length" ] || return 2
}
relay_serves() { read_model /test/served && cmp /test/served /test/reference; }

read_all_the_time() {
	local good=0 away=0
	until [ -e /test/readers-end ]; do
		if read_model "$1"; then
			cmp "$1" /test/reference || return 1
			good=$((good + 1))
		else
			away=$((away + 1))
		fi
		sleep 0.02
	done
	echo "the relay's model was read $good times, and not to be had $away times"
	[ $good -gt 10 ]
}
reader_ends() { touch /test/readers-end && wait "$reader" && cat /test/reader.out; }

# ---- what must stay ----

fill() {
	ctl old put --shared --mode=640 --attr=k=v /test/w1.npy plain && side old make b &&
		ctl old put two a=/test/w1.npy b=/test/b1.npy && ctl old save two /test/two.safetensors &&
		ctl old load --mode=0444 /test/two.safetensors llama && told >/test/told
}
# Neither the stream nor who has what open.
told() { ctl old ls --json=pretty plain && ctl old ls --json=pretty two && ctl old stat --json llama | grep -E '"(id|digest|mode|bytes)"'; }
told_is_the_same() { told | grep -v '"opens"\|"readers"' | diff <(grep -v '"opens"\|"readers"' /test/told) -; }

all_is_there() {
	local v
	told_is_the_same || return 1
	for v in "$@"; do
		side "$v" check b && ctl "$v" get plain /test/got.npy && cmp /test/got.npy /test/w1.npy &&
			ctl "$v" get two:b /test/got.npy && cmp /test/got.npy /test/b1.npy && ctl "$v" verify llama || return 1
	done
}

# What one version makes is the other one's.
crosses() { side old make x && side new check x && side new unlink x && side new make y && side old check y && side old unlink y; }

begin_probes() {
	local v
	for v in "$@"; do begin "probe-$v" "$v" probe b || return 1; done
}
end_probes() {
	local v
	for v in "$@"; do finish "probe-$v" || return 1; done
}
tell_probes() {
	local v
	for v in "${@:2}"; do echo "$1: $v's $(said "probe-$v")"; done
}

# The frames that were made are those that the other reader got.
stream_is_whole() {
	finish feed && wait "${client_pid[drain]}" && cat "$clients/drain.out" || return 1
	[ "$(said feed)" = "$(said drain | sed 's/.* the last is //') frames" ]
}

# ---- inside: the checks ----

settings() {
	printf '\n[limits]\nmax-table-bytes=128M\n[pool host]\nkind=host\nsize=64M\npending-max-count=4\n[pool twins]\nkind=host\nsize=64M\n' >>/etc/gpushm/gpushmd.conf
	gpushmd --check-config && systemctl restart gpushmd
}

old_service_at_work() {
	check "0.2's packages install" install_debs /test/old/*.deb
	check "it answers" soon ctl old status
	check "it is configured" settings
	check "it is filled" soon fill
	check "its relay starts" systemctl start gpushm-relay
	check "its relay serves the model" soon read_model /test/reference
	check "a process of 0.2 has a buffer" begin hold old hold b
	check "a stream of 0.2 is fed" begin feed old feed s
	check "it is read" begin drain old drain s
	read_all_the_time /test/read >/test/reader.out 2>&1 &
	reader=$!
	pid=$(systemctl show gpushmd -p MainPID --value)
}

upgrade() {
	begin_probes old
	check "0.3's packages install beside 0.2's libraries" install_debs /test/new/*.deb
	check "0.3 answers" soon runs 0.3
	check "it is the same process" is_in_place
	check "a process of 0.2 has opened all the time" end_probes old
	tell_probes "0.2 to 0.3" old
	check "all is there" all_is_there old new
	check "both versions share what they make" crosses
	check "the relay of 0.3 serves the same bytes" soon relay_serves
	check "the removed keys are told" journal_says "max-table-bytes"
	check "a reader of 0.3 follows the stream of 0.2" begin drain-new new drain s
	check "a process of 0.3 has the buffer of 0.2" begin hold-new new hold b
}

journal_says() { journalctl -q --no-pager -u gpushmd | grep -q "$1"; }

# 0.2 can't have what 0.3 has let go of.
evict_and_suspend() {
	ctl new put /test/w1.npy cold && ctl new demote --pool=twins cold && ctl new ls | grep '^cold .*evicted' &&
		begin away new suspend second
}
downgrade() { install_debs /test/old/gpushm{d,-tools,-relay}_*.deb; }
downgrade_is_refused() {
	downgrade 2>&1 | tee /test/refusal
	grep 'before 0.3' /test/refusal && grep 'evicted buffers (1:' /test/refusal && grep 'suspended opens (1:' /test/refusal &&
		grep 'the earlier program goes on' /test/refusal && runs 0.3
}
bring_back() { ctl new promote cold && finish away && grep 'resume: it is back' "$clients/away.out"; }

refused_downgrade() {
	check "something is evicted and something suspended" evict_and_suspend
	check "0.2 is refused meanwhile" downgrade_is_refused
	check "all is there, as before" all_is_there old new
	check "what was away comes back" bring_back
}

back_to_old() {
	begin_probes old new
	check "then 0.2 takes over" gpushmctl restart
	check "0.2 answers" soon runs 0.2
	check "it is the same process" is_in_place
	check "processes of both versions have opened all the time" end_probes old new
	tell_probes "0.3 to 0.2" old new
	check "all is there" all_is_there old new
	check "with what was evicted before" ctl old get cold /test/got.npy
	check "both versions share what they make" crosses
	check "the relay of 0.2 serves the same bytes" soon relay_serves
}

key_of_new_is_refused() {
	cp /etc/gpushm/gpushmd.conf /test/good.conf
	printf '\n[daemon]\nyield-timeout=3\n' >>/etc/gpushm/gpushmd.conf
	! gpushmctl restart >/test/refusal 2>&1 && journal_says yield-timeout && runs 0.3
}

# After a crash nobody asks: it restores what it knows, and says what it does not.
crash_into_old() {
	kill -KILL "$(systemctl show gpushmd -p MainPID --value)" && soon runs 0.2
}
lost_is_told() { ! ctl old get cold /test/got.npy 2>/test/lost && cat /test/lost && grep 'its memory was lost' /test/lost; }
away_is_told() { finish away && grep 'gpushmd is one before 0.3' "$clients/away.out"; }

again() {
	check "0.3 is installed again" install_debs /test/new/gpushm{d,-tools,-relay}_*.deb
	check "0.3 answers again" soon runs 0.3
	check "something is evicted and suspended again" evict_and_suspend_again
	check "0.2 is refused again" downgrade_is_refused
	check "a key of 0.3 keeps 0.2 out" key_of_new_is_refused
	cp /test/good.conf /etc/gpushm/gpushmd.conf
	begin_probes old new
	check "0.3 is killed with 0.2 in its place" crash_into_old
	check "processes of both versions have opened all the time" end_probes old new
	tell_probes "0.3 killed, 0.2 follows" old new
	check "all is there that 0.2 knows" all_is_there old new
	check "what was evicted is lost, and an open says so" lost_is_told
	check "what was suspended can't come back, and a resume says so" away_is_told
	check "0.3 is installed for good" install_debs /test/new/gpushm{d,-tools,-relay}_*.deb
	check "0.3 answers for good" soon runs 0.3
	check "all is there in the end" all_is_there old new
}
evict_and_suspend_again() { ctl new demote --pool=twins cold && begin away new suspend second; }

inside() {
	rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update
	old_service_at_work
	upgrade
	check "a second buffer" side new make second
	refused_downgrade
	back_to_old
	again
	check "the process of 0.2 still has its buffer" finish hold
	check "the process of 0.3, too" finish hold-new
	check "no frame of the stream is missing" stream_is_whole
	check "nor for the later reader" wait "${client_pid[drain-new]}"
	check "the relay's reader saw no wrong byte" reader_ends
	cat /test/reader.out
	report
}

case $1 in
--inside) inside ;;
*) outside "$1" ;;
esac
