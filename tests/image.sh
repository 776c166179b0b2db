#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The container image that "make image" has made, run by podman as the manuals say: a daemon in one container, clients
# in others that get the socket's folder by the Container Device Interface. Root and podman are needed; images and
# containers are in a folder of their own, and /run is, too, so that nothing of the machine's podman changes.
# Prints a line like Check's.
#   image.sh BUILD
# shellcheck disable=SC2317,SC2119,SC2120 # check calls functions by their names
set -u
id=47874

skip() {
	echo "skipped: the image: $*"
	exit 0
}

outside() {
	cd "$(dirname "$0")/.." || exit 1
	[ "$(id -u)" = 0 ] || skip "this test runs as root only"
	command -v podman >/dev/null || skip "there is no podman"
	[ -e "$1/image/gpushm.tar" ] || skip "it is not built (make image)"
	unshare --mount true 2>/dev/null || skip "unshare may not make a mount namespace"
	folder=$(mktemp -d -p "${TMPDIR:-/var/tmp}" gpushm-image-XXXXXX)
	trap 'rm -rf "$folder"' EXIT
	trap 'exit 1' INT TERM HUP
	unshare --mount --propagation private "$0" --inside "$(realpath "$1")" "$folder"
	exit
}

# ---- inside ----

checks=0
failures=0

check() {
	checks=$((checks + 1))
	"${@:2}" >"$folder/out" 2>&1 && return
	failures=$((failures + 1))
	echo "failed: $1"
	cat "$folder/out"
	p logs gpushmd 2>&1 | tail -n 20
}

# True before twenty seconds are over.
soon() {
	local deadline=$((SECONDS + 20))
	until "$@"; do
		[ "$SECONDS" -lt "$deadline" ] || return 1
		sleep 0.1
	done
}

p() {
	podman --root "$folder/root" --runroot "$folder/runroot" --tmpdir "$folder/tmp" --cgroup-manager=cgroupfs \
		--events-backend=file "$@"
}

# start OPTION... IMAGE ARGUMENT...
start() {
	p run --cgroups=disabled --network=none --ulimit=nofile="$(ulimit -Hn)" --ulimit=nproc=4096 --read-only --cap-drop=all --security-opt=no-new-privileges "$@"
}

# client UID OPTION... COMMAND: a shell command in a container of another user.
client() {
	start --rm --user "$1:$1" --device gpushm.org/socket=default "${@:2:$#-2}" --entrypoint sh "$image" -ec "${!#}"
}

ctl() {
	p exec gpushmd gpushmctl "$@"
}

has_its_form() {
	[ "$(p inspect --format '{{.Config.User}}' "$image")" = "$id:$id" ] &&
		[ "$(p inspect --format '{{.Config.Entrypoint}}' "$image")" = "[/usr/bin/gpushmd]" ] &&
		[ "$(stat -c %s "$build/image/gpushm.tar")" -lt $((50 << 20)) ] &&
		start --rm --entrypoint sh "$image" -ec '! find / -xdev -name "libcuda*" | grep . && grep ^gpushm: /etc/passwd'
}

# The commands of the README's section Install, as they are printed, but for sudo, what it says to leave out without a GPU,
# and what start() adds.
serves() {
	local gpu
	# shellcheck disable=SC2016 # a backquote of the text
	gpu=$(sed -n 's/.*without a GPU leave out `\([^`]*\)`.*/\1/p' README.md)
	[ -n "$gpu" ] || return 1
	awk '/^\*\*As a container/ { on = 1; next } /^(\*\*|#)/ { on = 0 } on && sub(/^    sudo /, "")' README.md >"$folder/commands"
	# Nothing else may run here: this is the machine's root.
	[ "$(sed 's/ -.*//' "$folder/commands" | tr '\n' ' ')" = "install podman run " ] || return 1
	[ -e /dev/nvidiactl ] || sed -i "s| $gpu||" "$folder/commands"
	sed -i -e 's/^podman run /start /' -e "s|oci-archive:build/|oci-archive:$build/|" "$folder/commands"
	# shellcheck source=/dev/null
	. "$folder/commands" && soon ctl status --quiet
}

# "docker load" reads an archive by its manifest.json.
docker_reads_it() {
	p save "$image" | tar -t | grep -Fx manifest.json
}

reads() {
	[ "$(client 20002 "$@" 'gpushmctl get --raw numbers - | tail -n 1')" = 99999 ]
}

shares() {
	client 20001 'seq -w 0 99999 | gpushmctl create --pool=host --mode=0644 --sealed --size=600000 --from=- numbers' &&
		reads
}

other_users_cannot_remove() {
	! client 20002 'gpushmctl rm numbers' && reads
}

holders() {
	[ "$(ctl ls --holders --json=short | grep -o '"lease"' | wc -l)" = "$1" ]
}

killed_container_lets_go() {
	client 20002 -d --name holder 'sleep 600 | gpushmctl hold numbers' && soon holders 1 &&
		p kill --signal=KILL holder && soon holders 0
}

daemon_pid() {
	ctl status --json=short | grep -o '"pid":[0-9]*' | head -n 1 | cut -d : -f 2
}

another_daemon() {
	local now
	now=$(daemon_pid) && [ -n "$now" ] && [ "$now" != "$1" ]
}

killed_daemon_returns() {
	local pid
	pid=$(daemon_pid) && [ "$pid" != 1 ] && p exec gpushmd sh -c "kill -9 $pid" && soon another_daemon "$pid" && reads
}

restarts() {
	ctl restart && soon reads
}

# As the manifest's second container: another user, who reads the folder of the socket.
exports() {
	client 47875 'exec bash -c "gpushm-exporter --listen 127.0.0.1:19400 & sleep 1
		exec 3<>/dev/tcp/127.0.0.1/19400 && printf \"GET /metrics HTTP/1.0\r\n\r\n\" >&3 && cat <&3"' |
		grep '^gpushm_up 1'
}

ends() {
	p stop --time 15 gpushmd && [ "$(p inspect --format '{{.State.ExitCode}}' gpushmd)" = 0 ]
}

inside() {
	build=$1
	folder=$2
	trap 'p rm --all --force >/dev/null 2>&1; p unshare true 2>/dev/null; umount -l "$folder/root/overlay" 2>/dev/null' EXIT
	mount -t tmpfs -o mode=755 tmpfs /run || exit 1
	# crun refuses a machine that has both versions of cgroups.
	mount -t cgroup2 cgroup2 /sys/fs/cgroup 2>/dev/null
	install -D -m 644 systemd/container/gpushm.json /run/cdi/gpushm.json
	p load --quiet -i "$build/image/gpushm.tar" >"$folder/said" 2>&1 || skip "podman load: $(tail -n 1 "$folder/said")"
	image=$(p images --format '{{.Repository}}:{{.Tag}}' | grep gpushm | head -n 1)
	start --rm --entrypoint true "$image" >"$folder/said" 2>&1 || skip "podman run: $(tail -n 1 "$folder/said")"
	check "the image has a user or a library that it should not have" has_its_form
	check "the daemon does not run in a container" serves
	check "the manual's line for Docker gives no archive of Docker's" docker_reads_it
	check "two containers do not share a buffer" shares
	check "a container with a user namespace does not" reads --uidmap 0:300000:65536 --gidmap 0:300000:65536
	check "another user removes a name" other_users_cannot_remove
	check "a killed container keeps its leases" killed_container_lets_go
	check "a killed daemon loses its buffers" killed_daemon_returns
	check "a planned restart loses them" restarts
	check "the exporter does not reach the daemon" exports
	check "the container does not end" ends
	echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
	exit $((failures > 0))
}

case $1 in
--inside) inside "${@:2}" ;;
*) outside "$@" ;;
esac
