#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The Debian packages of BUILD/deb under real systemd: installation, upgrades, removal, purge. tests/system/systemd_boot.sh
# gives the machine for it, with a copy of this one's root in memory. The later versions are the same packages with
# another number in control and in the program. Prints a line like Check's.
#   upgrade.sh BUILD
set -u

cd "$(dirname "$0")/../.." 2>/dev/null || true
# shellcheck source=tests/system/booted.sh
. "$([ "$1" = --inside ] && echo /test || echo tests/system)/booted.sh"
shown=MainPID
units=(gpushmd)

# repack VERSION: another version of gpushmd, whose program has another version of the same length in it.
repack() {
	local last=${1: -1} from=$stage/test/1 to=$stage/test/$1
	mkdir "$to" && dpkg-deb -R "$from"/gpushmd_*.deb "$to/tree" || return 1
	sed -i "s/^Version: .*/&+$1/" "$to/tree/DEBIAN/control"
	LC_ALL=C sed -i "s/${version//./\\.}/${version%?}$last/g" "$to/tree/usr/bin/gpushmd"
	dpkg-deb -b "$to/tree" "$to" >/dev/null && rm -r "$to/tree"
}

outside() {
	boot_needs dpkg-deb
	new_stage
	mkdir "$stage/test/1"
	cp "$1"/deb/{gpushmd,gpushm-tools,libgpushm1,libgpushm-load1}_*.deb "$stage/test/1" || exit 1
	version=$("$1/gpushmd" --version | cut -d ' ' -f 2)
	for number in a b c; do repack $number || exit 1; done
	echo "$version" >"$stage/test/version"
	boot
}

# ---- inside ----

unpack() {
	dpkg -i "$@" </dev/null
}

# It stays when its package goes.
ctl() {
	LD_LIBRARY_PATH=/test /test/gpushmctl "$@"
}

serves_version() {
	ctl status --json | grep -q "${version%?}$1\""
}

id_of() {
	ctl stat --json model | grep -o '"id": *"[0-9]*"' | head -n 1
}

same_buffer() {
	ctl get model /test/got.npy && cmp /test/w1.npy /test/got.npy && [ "$(id_of)" = "$id" ]
}

is_held() {
	ctl ls --holders --json | grep -q "\"pid\": *$1[,}]"
}

hold_ends() {
	exec {hold_in}>&-
	wait "$holder"
}

# Only dpkg's own lists and the journal may name gpushm.
nothing_is_left() {
	! find / /run -xdev \( -path /proc -o -path /sys -o -path /test -o -path /tmp -o -path /root -o -path /home -o -path /work \
		-o -path /var/tmp -o -path /usr/local -o -path /var/lib/dpkg \) -prune -o -newer /test/version -name '*gpushm*' -print |
		grep .
}

inside() {
	version=$(cat /test/version)
	rm -f /usr/sbin/policy-rc.d /var/lib/man-db/auto-update
	check "the packages install" unpack /test/1/*.deb
	cp /usr/bin/gpushmctl /test/
	cp -P /usr/lib/*/libgpushm* /test/
	check "the user is there" getent passwd gpushm
	check "the service and the socket are enabled" systemctl is-enabled gpushmd.service gpushmd.socket
	check "the service runs" soon shows ActiveState active
	check "it answers" soon ctl status
	check "put" ctl put /test/w1.npy model
	id=$(id_of)
	coproc HOLD { LD_LIBRARY_PATH=/test exec /test/gpushmctl hold model; }
	holder=$HOLD_PID hold_in=${HOLD[1]}
	check "a process holds the buffer" read -r -t 10 -u "${HOLD[0]}" _
	echo '# changed' >>/etc/gpushm/gpushmd.conf
	pid=$(systemctl show gpushmd -p MainPID --value)

	check "an upgrade" unpack /test/a/*.deb
	check "the new program has taken over in place" shows MainPID "$pid"
	check "systemd has started nothing" shows NRestarts 0
	check "the new version answers" soon serves_version a
	check "the buffer is the same" same_buffer
	check "its holder is listed" is_held "$holder"
	check "the changed configuration is kept" grep -qx '# changed' /etc/gpushm/gpushmd.conf

	cp /etc/gpushm/gpushmd.conf /test/good.conf
	echo 'sise=1G' >>/etc/gpushm/gpushmd.conf
	check "an upgrade while the configuration has an error" unpack /test/b/*.deb
	cp /test/good.conf /etc/gpushm/gpushmd.conf
	check "the earlier program goes on" serves_version a
	check "with the buffer" same_buffer

	check "gpushmctl is removed" dpkg -r gpushm-tools
	check "an upgrade without gpushmctl" unpack /test/c/*.deb
	check "the newest version answers" soon serves_version c
	check "systemd has started it" test "$(systemctl show gpushmd -p MainPID --value)" != "$pid"
	check "the buffer is still the same" same_buffer
	check "its holder is still listed" soon is_held "$holder"

	check "the holder ends well" hold_ends

	check "removal" dpkg -r gpushmd
	check "the daemon is gone" shows ActiveState inactive
	check "the configuration is not" test -f /etc/gpushm/gpushmd.conf
	check "purge" dpkg --purge gpushmd libgpushm-load1 libgpushm1
	check "nothing is left" nothing_is_left
	check "but the user" getent passwd gpushm
	report
}

case $1 in
--inside) inside ;;
*) outside "$1" ;;
esac
