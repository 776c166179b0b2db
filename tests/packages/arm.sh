#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The wheel for 64-bit Arm, made on another machine: what is in it, and that its programs start, by qemu's user mode, with
# the C library of Debian's packages for that machine. qemu 7.2 does not know SO_PEERGROUPS, without which daemon and library
# refuse each other: so no daemon serves here. Prints a line like Check's.
#   arm.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$(realpath "$1")
arch=aarch64

skip() {
	echo "skipped: a wheel for 64-bit Arm: $*"
	exit 0
}
[ "$(uname -m)" != $arch ] || skip "it is this machine's own: tests/wheel.sh"
for tool in unzip apt-get "qemu-$arch-static"; do command -v "$tool" >/dev/null || skip "there is no $tool"; done
make -s BUILD="$build" wheel-tools >"$stage/.out" 2>&1 || skip "pip has no compiler for it: $(tail -n 1 "$stage/.out")"

unpacks() { unzip -q "$build"/dist/gpushm-*_$arch.whl -d "$stage/wheel"; }
is_for_arm_alone() {
	local file n=0
	while read -r file; do
		[ "$(head -c 4 "$file")" = $'\x7fELF' ] || continue
		readelf -h "$file" | grep -q AArch64 || return 1
		n=$((n + 1))
	done < <(find "$stage/wheel" -type f)
	# gpushmd, gpushmctl, the extension, two libraries of ours and two of others.
	[ $n = 7 ]
}
needs_no_later_glibc() {
	! find "$stage/wheel" -type f \( -name '*.so*' -o -name "gpushm[dc]*" \) -exec readelf -V {} + 2>/dev/null |
		grep -oE 'GLIBC_2\.[0-9]+' | sort -uV | sed 's/GLIBC_2\.//' | awk '$1 > 28' | grep .
}
names_the_packages_of_arm() { cut -d ' ' -f 1 "$stage"/wheel/gpushm-*.dist-info/licenses/PACKED | sort | diff - <(printf '%s\n' libjansson-dev libprotobuf-c-dev libuv1-dev nettle-dev); }
starts() {
	local program
	program=$(find "$stage/wheel" -type f -name "$1" | head -n 1)
	chmod +x "$program"
	"qemu-$arch-static" -L "$stage/root" "$program" --version | grep -F "$(make -s print-VERSION | tr -d ' ')"
}
# Its C library is where qemu looks for it: below /lib, as on a machine whose /lib is /usr/lib.
has_c_library() {
	mkdir "$stage/root" && cp -a "$build/packages-$arch"/{lib,usr} "$stage/root/" 2>/dev/null
	[ -e "$stage/root/lib/ld-linux-$arch.so.1" ]
}

check "make wheel makes it" make -s BUILD="$build" wheel WHEEL_ARCH=$arch
check "it unpacks" unpacks
check "all programs and libraries are for Arm" is_for_arm_alone
check "they need no glibc after 2.28" needs_no_later_glibc
check "it names the packages whose libraries it has" names_the_packages_of_arm
check "there is a C library of Arm" has_c_library
for program in gpushmd gpushmctl; do check "$program starts" starts $program; done
end_of_checks
