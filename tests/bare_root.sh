#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The README's two commands on a machine that has almost nothing: a minimal Debian 12 with git and make, made by
# mmdebstrap. It is entered by pivot_root in namespaces of its own (our tests make user namespaces, which a chroot
# forbids), and removed afterwards. Takes its mirror and pip's settings from this machine.
#   tests/bare_root.sh            make deps demo; README's commands for an installation from source, the unit tests and lint
#   BARE=full tests/bare_root.sh  make deps demo; make deps check
#   BARE=deb tests/bare_root.sh   README's commands for Debian packages, and the tests of what they install
#   BARE=release RELEASE=FOLDER tests/bare_root.sh   the files of a release, each as people use it
# Prints a line like Check's.
set -u
cd "$(dirname "$0")/.." || exit 1
suite=bookworm

skip() {
	echo "skipped: a bare root: $*"
	exit 0
}

# ---- inside ----

# mount_all ROOT: what programs expect below /. Devices are the machine's own.
mount_all() {
	mount --bind "$1" "$1" && mount -t proc proc "$1/proc" && mount -t tmpfs -o mode=755 tmpfs "$1/dev" || return 1
	mkdir "$1/dev/pts" "$1/dev/shm" &&
		mount -t devpts -o newinstance,ptmxmode=0666 devpts "$1/dev/pts" &&
		mount -t tmpfs -o mode=1777 tmpfs "$1/dev/shm" && mount -t tmpfs -o mode=1777 tmpfs "$1/tmp" || return 1
	for device in null zero full random urandom tty; do
		touch "$1/dev/$device" && mount --bind "/dev/$device" "$1/dev/$device" || return 1
	done
	ln -s pts/ptmx "$1/dev/ptmx" && ln -s /proc/self/fd "$1/dev/fd" && ln -s fd/0 "$1/dev/stdin" &&
		ln -s fd/1 "$1/dev/stdout" && ln -s fd/2 "$1/dev/stderr"
}

inside() {
	mount_all "$1" && cd "$1" && mkdir -p .outside && pivot_root . .outside && cd / && umount -l .outside || exit 125
	cd /gpushm || exit 125
	checks=0
	failures=0
	for command in "${@:2}"; do
		checks=$((checks + 1))
		started=$SECONDS
		read -ra words <<<"$command"
		if ! env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8 bash -c \
			'set -a; . /etc/environment; exec "$@"' bash "${words[@]}" >/tmp/out 2>&1 </dev/null; then
			failures=$((failures + 1))
			grep -vE '^  (CC|LD|GEN|PIP) ' /tmp/out
			echo "failed: $command"
		fi
		echo "$command: $((SECONDS - started)) s; $(tail -n 1 /tmp/out)"
		# What was left out for want of something, and what deps has to say.
		grep -E '^(deps|skipped|built without)|: skipped|left out' /tmp/out
	done
	echo "$((100 * (checks - failures) / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
	exit $((failures > 0))
}

# ---- outside ----

# settings ROOT: apt's, pip's, and the network's.
settings() {
	cp -L /etc/resolv.conf "$1/etc/resolv.conf"
	local file cert=${PIP_CERT:-${SSL_CERT_FILE:-}}
	for file in /etc/pip.conf "$HOME/.config/pip/pip.conf" "$HOME/.pip/pip.conf"; do
		[ ! -f "$file" ] || cat "$file"
	done >"$1/etc/pip.conf"
	env | grep -E '^(PIP_[A-Z_]*|[a-z]*_proxy|[A-Z]*_PROXY)=' | grep -v '^PIP_FIND_LINKS=' >"$1/etc/environment"
	cert=${cert:-$(sed -n 's/^cert *= *//p' "$1/etc/pip.conf" | head -n 1)}
	if [ -f "$cert" ]; then
		cp -L "$cert" "$1/etc/bare_root.crt"
		echo "PIP_CERT=/etc/bare_root.crt" >>"$1/etc/environment"
	fi
}

# This machine's mirror, if it is of the same suite; else mmdebstrap knows one.
mirror() {
	if grep -qx "VERSION_CODENAME=$suite" /etc/os-release; then
		cat /etc/apt/sources.list /etc/apt/sources.list.d/*.sources 2>/dev/null
	fi
}

make_root() {
	local list=()
	apt-config dump | grep -E '^Acquire::(https?::|Check-|Retries)' >"$folder/apt.conf"
	mirror >"$folder/mirror.sources"
	[ ! -s "$folder/mirror.sources" ] || list=("$folder/mirror.sources")
	mmdebstrap --quiet --variant=minbase --include=git,make --aptopt="$folder/apt.conf" \
		$suite "$folder/tree.tar" "${list[@]}" >"$folder/log" 2>&1
}

[ "${1-}" != --inside ] || inside "${@:2}"

command -v mmdebstrap >/dev/null || skip "there is no mmdebstrap"
namespaces=(--mount --pid --fork --kill-child)
if [ "$(id -u)" != 0 ]; then namespaces+=(--user --map-root-user --map-auto); fi
unshare "${namespaces[@]}" true 2>/dev/null || skip "unshare may not make namespaces"
folder=$(mktemp -d -p "${TMPDIR:-/var/tmp}" gpushm-bare-XXXXXX)
# What was extracted belongs to the users of that namespace.
trap 'unshare "${namespaces[@]}" rm -rf --one-file-system "$folder/tree"; rm -rf "$folder"' EXIT
trap 'exit 1' INT TERM HUP
make_root || skip "mmdebstrap: $(tail -n 1 "$folder/log")"
mkdir "$folder/tree"
unshare "${namespaces[@]}" tar -xpf "$folder/tree.tar" --numeric-owner -C "$folder/tree" || exit 1
rm "$folder/tree.tar"
settings "$folder/tree"
git clone -q --no-local . "$folder/tree/gpushm" || exit 1
cp "$0" "$folder/tree/bare_root.sh"
commands=("make deps demo")
if [ "${BARE-}" = full ]; then
	commands+=("make deps check")
elif [ "${BARE-}" = deb ]; then
	{
		echo 'export DEB_BUILD_OPTIONS=nocheck; apt() { apt-get -qy "$@"; }'
		sed -n '/^\*\*Debian packages\*\*/,/^\*\*[^D]\|^##/s/^    \(sudo \)\?//p' README.md
		echo 'apt install ./libgpushm-dev_*.deb python3-numpy'
	} >"$folder/tree/readme.sh"
	[ "$(wc -l <"$folder/tree/readme.sh")" -ge 5 ] || exit 1
	commands=("bash -ex /readme.sh" systemd/debian/tests/host-pools)
elif [ "${BARE-}" = release ]; then
	cp -r "$RELEASE" "$folder/tree/release" || exit 1
	commands=()
	for kind in sums deb wheel sdist source; do commands+=("tests/packages/tried.sh $kind /release"); done
else
	tests/readme_install.sh 'From source' | sed 's/^sudo //' >"$folder/tree/readme.sh"
	commands+=("bash -ex /readme.sh" "gpushmd --version" "gpushmctl --version" "make -k deps check-unit lint")
fi
unshare "${namespaces[@]}" --propagation private "$folder/tree/bare_root.sh" --inside "$folder/tree" "${commands[@]}" &
wait $!
status=$?
[ $status -ne 125 ] || skip "the root can't be entered"
exit $status
