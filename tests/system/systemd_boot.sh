#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Boots the machine's own systemd as PID 1 of throw-away namespaces, with a folder copied over the
# root, and runs a command in it. Its root is an overlay of / in memory with /dev, /run, /tmp,
# network, cgroups and host name of its own; no unit is started but the journal. Nothing outside
# changes, and with this script all of it goes. Ends with the command's status, or with 125 where it
# can't boot, and says why.
#   systemd_boot.sh STAGE COMMAND...
set -eu

cannot() {
	echo "$*"
	exit 125
}

# In namespaces of its own: makes the root and becomes systemd. $1 is the base, $2 the stage.
become_init() {
	root=$1/root
	mkdir -p "$1"/mem/{up,work} "$root"
	mount -t overlay overlay -o "lowerdir=/,upperdir=$1/mem/up,workdir=$1/mem/work" "$root"
	mount -t proc proc "$root/proc"
	mount --bind "$root/proc/sys" "$root/proc/sys"
	mount -o remount,bind,ro "$root/proc/sys"
	mount -t sysfs -o ro sysfs "$root/sys"
	mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
	for d in run tmp dev; do mount -t tmpfs -o mode=755 tmpfs "$root/$d"; done
	chmod 1777 "$root/tmp"
	for d in null zero full random urandom tty; do
		: >"$root/dev/$d"
		mount --bind "/dev/$d" "$root/dev/$d"
	done
	ln -s /proc/self/fd "$root/dev/fd"

	units=$root/etc/systemd/system
	rm -rf "$root"/{etc,usr/lib}/systemd/system/*.{wants,requires} "$root"/usr/lib/systemd/system-generators \
		"$root"/etc/fstab "$root"/var/log/journal
	for unit in systemd-journald-dev-log.socket systemd-journald-audit.socket systemd-journal-flush.service; do
		ln -sf /dev/null "$units/$unit"
	done
	printf '[Unit]\nDefaultDependencies=no\nWants=systemd-journald.socket\n' >"$units/bare.target"
	cp -a "$2/." "$root/"
	export container=test
	# Not chroot: whoever enters the mount namespace would find the machine's root in it.
	mkdir "$root/mnt/machine"
	cd "$root"
	pivot_root . mnt/machine
	umount -l /mnt/machine
	exec chroot . /lib/systemd/systemd --unit=bare.target --log-target=null --show-status=no
}

# Both hierarchies go with the script: first the processes, then their cgroups.
clean_up() {
	if [ -n "${outer-}" ]; then
		kill -9 "$outer" 2>/dev/null || true
		wait "$outer" 2>/dev/null || true
	fi
	deadline=$((SECONDS + 10))
	until [ ! -d "$cgroup" ] || { find "$cgroup" -depth -type d -exec rmdir {} + && [ ! -d "$cgroup" ]; } 2>/dev/null; do
		[ $SECONDS -lt $deadline ] || break
		sleep 0.05
	done
}

in_it() {
	nsenter -t "$init" -m -p -i -n -u -C -r -w "$@"
}

is_up() {
	init=$(pgrep -P "$outer" | head -n 1) && [ "$(cat "/proc/$init/comm")" = systemd ] &&
		in_it systemctl is-active bare.target
}

# In a mount namespace of its own, so that the mounts go with it. $1 is the base, $2 the stage.
boot() {
	base=$1 stage=$2
	shift 2
	mount -t tmpfs tmpfs "$base" || cannot "mounts are refused"
	mkdir "$base/cgroup"
	mount -t cgroup2 cgroup2 "$base/cgroup" || cannot "there is no cgroup2"
	cgroup=$base/cgroup$(awk -F: '$1 == "0" { print $3 }' /proc/self/cgroup)/gpushm-test-$$
	mkdir "$cgroup" || cannot "no cgroup can be made"
	trap clean_up EXIT
	trap 'exit 1' INT TERM HUP
	# The cgroup that a cgroup namespace is made in becomes its root.
	(echo "$BASHPID" >"$cgroup/cgroup.procs" &&
		exec unshare -fmpiunC --kill-child "$self" --init "$base" "$stage") </dev/null >"$base/log" 2>&1 &
	outer=$!
	deadline=$((SECONDS + 20))
	until is_up >/dev/null 2>&1; do
		if [ $SECONDS -ge $deadline ] || ! kill -0 $outer 2>/dev/null; then
			cannot "systemd does not boot: $(cat "$base/log")"
		fi
		sleep 0.05
	done
	# A signal is acted upon while bash waits, not while it runs a command.
	in_it "$@" &
	wait $!
}

self=$(realpath "$0")
case $1 in
--init) become_init "$2" "$3" ;;
--boot) boot "${@:2}" ;;
*)
	base=$(mktemp -d)
	trap 'rmdir "$base"' EXIT
	trap 'kill $child 2>/dev/null || true' INT TERM HUP
	unshare -m true || cannot "no namespaces"
	unshare -m "$self" --boot "$base" "$@" &
	child=$!
	status=0
	wait $child || status=$?
	# A signal ends wait, not yet the child.
	wait $child 2>/dev/null || true
	exit $status
	;;
esac
