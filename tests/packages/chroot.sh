#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds the Debian packages with their tests as package builders do: in a chroot made by mmdebstrap that has only what
# debian/control asks for, as a user without rights, in a PID namespace of its own, and without a network. SUITE is
# this machine's unless it is given. Prints a line like Check's.
#   chroot.sh BUILD [SUITE]
set -u
cd "$(dirname "$0")/../.." || exit 1

skip() {
	echo "skipped: a chroot: $*"
	exit 0
}

# ---- inside ----

# In namespaces of its own: mounts what programs expect, without /sys, and becomes the builder. Builders have no network but
# the loopback device.
inside() {
	ip link set lo up && mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=755 tmpfs "$1/dev" && mkdir "$1/dev/pts" "$1/dev/shm" &&
		mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts" &&
		mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" || exit 125
	for device in null zero full random urandom tty; do
		touch "$1/dev/$device" && mount --bind "/dev/$device" "$1/dev/$device" || exit 125
	done
	ln -s pts/ptmx "$1/dev/ptmx" && ln -s /proc/self/fd "$1/dev/fd" || exit 125
	exec chroot "$1" setpriv --reuid=1000 --regid=1000 --clear-groups env -i PATH=/usr/bin:/bin HOME=/nonexistent LANG=C.UTF-8 \
		CUDA_INCLUDE="$2" bash -c 'cd /build/gpushm && dpkg-buildpackage --build=binary --no-sign'
}

# ---- outside ----

[ "$1" != --inside ] || inside "${@:2}"
command -v mmdebstrap >/dev/null || skip "there is no mmdebstrap"
command -v ip >/dev/null || skip "there is no ip"
[ "$(id -u)" = 0 ] || skip "only root makes one here"
build=$1
here=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
suite=${2:-$here}
folder=$(mktemp -d -p "${TMPDIR:-/var/tmp}" gpushm-chroot-XXXXXX)
trap 'rm -rf --one-file-system "$folder"' EXIT
trap 'exit 1' INT TERM HUP

make -s deb-source BUILD="$build" || exit 1
cuda=
if [ -n "${CUDA_INCLUDE-}" ]; then
	cuda=/usr/local/cuda/include
	mkdir "$folder/cuda" && cp "$CUDA_INCLUDE/cuda.h" "$folder/cuda"
fi
mirror=()
cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null | sed "s/\b$here\b/$suite/g" >"$folder/mirror.sources"
[ ! -s "$folder/mirror.sources" ] || mirror=("$folder/mirror.sources")
apt-config dump | grep -E '^Acquire::(https?::|Check-|Retries)' >"$folder/apt.conf"
# shellcheck disable=SC2016 # mmdebstrap's shell expands it
mmdebstrap --quiet --variant=buildd --aptopt="$folder/apt.conf" \
	--customize-hook='mkdir "$1/build" && cp -r '"$build"'/deb-source/gpushm-* "$1/build/gpushm"' \
	${cuda:+--customize-hook='mkdir -p "$1/usr/local/cuda" && cp -r '"$folder"'/cuda "$1'$cuda'"'} \
	--customize-hook='chroot "$1" apt-get build-dep -qy --no-install-recommends /build/gpushm && chown -R 1000:1000 "$1/build"' \
	"$suite" "$folder/root" "${mirror[@]}" >"$folder/log" 2>&1 || skip "mmdebstrap: $(grep -E '^E:' "$folder/log" | tail -n 1)"
rm -rf "$build/deb-source"
unshare --mount --pid --fork --kill-child --net --ipc --uts --propagation private "$0" --inside "$folder/root" "$cuda" \
	>"$build/chroot.log" 2>&1 &
wait $!
status=$?
[ $status -ne 125 ] || skip "it can't be entered"
grep -E '^skipped: |^   |^[0-9]+ passed' "$build/chroot.log"
if [ $status -ne 0 ]; then tail -n 60 "$build/chroot.log"; fi
echo "$((status == 0 ? 100 : 0))%: Checks: 1, Failures: $((status != 0)), Errors: 0"
exit $status
