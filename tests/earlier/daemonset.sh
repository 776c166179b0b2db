#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What an update of the DaemonSet (systemd/kubernetes) does to a node, without a cluster: a pod is a process tree in
# namespaces of its own with the manifest's user, no capabilities, and the hostPath folder; the GPU is tests/fakecuda. The
# DaemonSet has updateStrategy: OnDelete, so the kubelet ends the old pod (SIGTERM to its first process), and starts the new
# one when that has gone. A pod's descriptors end with it, and so do its buffers: what must hold is that nobody gets a wrong
# answer, that processes keep what they have mapped, and that both versions work with the new pod.
# No kubelet, no image and no scheduler is tested. Prints a line like Check's.
#   daemonset.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$(realpath "$1")
# shellcheck source=tests/earlier/version.sh
. tests/earlier/version.sh
# shellcheck source=tests/earlier/clients.sh
. tests/earlier/clients.sh
user=47874 # of the manifest

skip() {
	echo "skipped: the DaemonSet's update: $*"
	exit 0
}
[ "$(id -u)" = 0 ] || skip "namespaces are made by root"
[ -e "$build/fakecuda/libcuda.so.1" ] || skip "there is no cuda.h, and so no fake driver"
unshare --mount --pid --fork true 2>/dev/null || skip "unshare may make no namespaces"
for program in setpriv cc dpkg-checkbuilddeps; do command -v $program >/dev/null || skip "there is no $program"; done
dpkg-checkbuilddeps systemd/debian/control 2>/dev/null || skip "0.2's packages can't be built: dpkg-checkbuilddeps systemd/debian/control"
needs_old "the DaemonSet's update"

# What is in the two images, where each user can read it.
fill_images() {
	build_old_debs && mkdir -p "$stage"/{old,new,fake,run,clients} && cp "$old_root"/usr/bin/gpushm{d,ctl} "$stage/old" &&
		cp -P "$old_root"/usr/lib/*-linux-gnu/libgpushm*.so* "$stage/old" && cp "$build"/gpushm{d,ctl} "$stage/new" &&
		cp -P "$build"/libgpushm*.so* "$stage/new" && cp -P "$build"/fakecuda/* "$stage/fake" && cp tests/data/w1.npy "$stage" &&
		cc -O1 -D_GNU_SOURCE -I"$old_root/usr/include" -o "$stage/old/side" tests/earlier/side.c -L"$stage/old" -lgpushm &&
		cc -O1 -D_GNU_SOURCE -Iclient -I"$build/gen" -o "$stage/new/side" tests/earlier/side.c -L"$stage/new" -lgpushm || return 1
	printf '[daemon]\ndefault-pool=host\n[pool host]\nkind=host\nsize=64M\n[pool gpu0]\nkind=vmm\ndevice=0\nsize=64M\n' >"$stage/conf"
	chmod -R a+rX "$stage" && chown $user:$user "$stage/run"
}

# ---- pods ----

clients=$stage/clients
export GPUSHM_SOCKET=/run/gpushm/gpushmd.sock
# The library's own: with the longer one of tests/run.sh a reader would learn of its daemon's end after "side" gives up.
export GPUSHM_RECONNECT_MS=10000

# in_pod UID VERSION PROGRAM...: the folder is where the manifest mounts it.
in_pod() {
	# shellcheck disable=SC2016 # for the inner shell
	exec env LD_LIBRARY_PATH="$stage/$2:$stage/fake" unshare --fork --kill-child --pid --mount --mount-proc --ipc --uts sh -c '
		mount -t tmpfs -o mode=755 tmpfs /run && mkdir /run/gpushm && mount --bind "$1" /run/gpushm && shift && exec setpriv "$@"' \
		sh "$stage/run" --reuid="$1" --regid="$1" --clear-groups --no-new-privs --bounding-set=-all "$stage/$2/$3" "${@:4}"
}
side() { (in_pod 20001 "$1" side "$GPUSHM_SOCKET" "${@:2}"); }
ctl() { (in_pod 20002 "$1" gpushmctl "${@:2}"); }
soon() {
	for _ in {1..200}; do
		if "$@"; then return; fi
		sleep 0.05
	done
	return 1
}

first_of() { pgrep -P "$1"; }
runs() { ctl "$1" status --json=short 2>/dev/null | grep -q "gpushmd $2\\."; }
start_pod() {
	(in_pod $user "$1" gpushmd --config "$stage/conf" --socket "$GPUSHM_SOCKET") 2>>"$stage/log" &
	pod=$!
	soon runs "$1" "$2"
}
# The kubelet's signal goes to the pod's first process.
delete_pod() {
	kill "$(first_of "$pod")" && wait "$pod"
	! first_of "$pod"
}
end() {
	kill -KILL "${pod-}" 2>/dev/null
	wait
	rm -rf "$stage"
}
trap end EXIT

# ---- the checks ----

holds_weights() { ctl "$1" put --mode=0644 --pool=gpu0 "$stage/w1.npy" weights; }
# The bytes of a GPU's buffer, which another user reads, whatever that user's version.
reads_weights() {
	local v
	for v in old new; do ctl $v get weights - | cmp - "$stage/w1.npy" || return 1; done
}
crosses() { side old make x && side new check x && side new unlink x && side new make y && side old check y && side old unlink y; }

another_pod_is_refused() {
	(in_pod $user "$1" gpushmd --config "$stage/conf" --socket "$GPUSHM_SOCKET") 2>"$stage/refusal"
	local status=$?
	cat "$stage/refusal"
	[ $status -ne 0 ] && grep -q "$GPUSHM_SOCKET" "$stage/refusal" && runs "$2" "$3"
}
names_are_gone() { ! ctl "$1" get weights - 2>"$stage/gone" && grep 'no buffer "weights"' "$stage/gone"; }
nobody_answers() { ! ctl "$1" status 2>"$stage/away" && cat "$stage/away" && grep -q "$GPUSHM_SOCKET" "$stage/away"; }
outlives() { finish "outlive-$1" && grep 'another daemon serves' "$clients/outlive-$1.out"; }
# Each frame before was the right one, or it would have said so.
stream_ends() {
	finish feed || return 1
	! wait "${client_pid[drain]}" && cat "$clients/drain.out" && grep 'the connection to the daemon has ended' "$clients/drain.out"
}

# update FROM NUMBER TO NUMBER
update() {
	local since v
	check "$1: it holds memory of the GPU" holds_weights "$1"
	check "$1: processes of both versions read it" reads_weights
	check "$1: a buffer" side "$1" make b
	for v in old new; do check "$1: a process of the $v version has it" begin outlive-$v $v outlive b; done
	check "$1: a stream is fed" begin feed "$1" feed s
	check "$1: a reader of the $3 version follows" begin drain "$3" drain s
	check "$1: a pod beside it is refused" another_pod_is_refused "$3" "$1" "$2"
	since=${EPOCHREALTIME/./}
	check "$1: its pod is deleted" delete_pod
	for v in old new; do check "without a pod the $v version says so" nobody_answers $v; done
	check "$3: its pod starts" start_pod "$3" "$4"
	echo "DaemonSet, $2 to $4: no daemon for $(((${EPOCHREALTIME/./} - since) / 1000)) ms"
	for v in old new; do
		check "$3: the names are gone for the $v version" names_are_gone $v
		check "$3: a process of the $v version has kept its memory, and knows" outlives $v
	done
	check "$3: the producer went on, and its reader knows" stream_ends
	check "$3: both versions share what they make" crosses
}

check "the images are filled" fill_images
check "old: its pod starts" start_pod old 0.2
update old 0.2 new 0.3
update new 0.3 old 0.2
check "old: its pod ends" delete_pod
end_of_checks
