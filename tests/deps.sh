#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Installs what the goals of a make need, in four steps: what the demo needs; all programs; "check"; all other goals.
#   tests/deps.sh BUILD GOAL...
# Names are those that Debian 12 and Ubuntu 24.04 share. No package is installed whose service would then start: of such a
# package the programs are unpacked into BUILD.
set -u
build=$1
shift
export BUILD=$build

demo=(gcc libc6-dev binutils pkgconf protobuf-c-compiler libprotobuf-c-dev libuv1-dev libsystemd-dev python3 python3-venv ca-certificates)
all=(git libjansson-dev libxxhash-dev nettle-dev libcurl4-openssl-dev libmicrohttpd-dev libgnutls28-dev)
# procps has pgrep.
check=(check python3-dev procps curl openssl iproute2)
# libclang-rt-dev has the sanitizers and libFuzzer; rpmlint asks rpm.
deep=(g++ cmake clang libclang-rt-dev clang-format cppcheck shellcheck universal-ctags mandoc groff valgrind unzip xz-utils
	abigail-tools iptables iperf3 build-essential debhelper dh-python chrpath lintian rpmlint rpm cpio)

step=1
for goal in "$@"; do
	case $goal in
	demo | daemon | lib) ;;
	all | install | uninstall | models | relay | ctl | examples) [ $step -gt 2 ] || step=2 ;;
	check | check-lib | check-daemon | check-models | check-relay | check-ctl | check-python | check-unit | python) [ $step -gt 3 ] || step=3 ;;
	*) step=4 ;;
	esac
done
packages=("${demo[@]}")
[ $step -lt 2 ] || packages+=("${all[@]}")
[ $step -lt 3 ] || packages+=("${check[@]}")
[ $step -lt 4 ] || packages+=("${deep[@]}")

say() { echo "deps: $*"; }

missing=()
for p in "${packages[@]}"; do
	dpkg-query -W -f '${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing+=("$p")
done
as=()
if [ ${#missing[@]} -eq 0 ]; then
	say "all packages are installed"
elif ! command -v apt-get >/dev/null; then
	say "no apt-get here. Install what these Debian packages hold: ${missing[*]}" >&2
	exit 1
else
	if [ "$(id -u)" != 0 ]; then
		as=("$(command -v sudo)") || {
			say "neither root nor sudo. Ask for: apt-get install ${missing[*]}" >&2
			exit 1
		}
	fi
	say "installing ${missing[*]}"
	apt=("${as[@]}" env DEBIAN_FRONTEND=noninteractive apt-get)
	"${apt[@]}" update -q && "${apt[@]}" install -qy --no-install-recommends "${missing[@]}" || exit 1
fi

# unpacked NAME PACKAGE...: the programs of packages in BUILD/NAME.
unpacked() {
	local folder=$build/$1
	[ ! -e "$folder/ready" ] || return 0
	rm -rf "$folder"
	mkdir -p "$folder"
	(
		cd "$folder" && apt-get download -q "${@:2}" >log 2>&1 || exit 1
		for p in *.deb; do dpkg-deb -x "$p" . || exit 1; done
		rm -f ./*.deb log && touch ready
	) || say "apt-get has no $1 here: tests with it are left out"
}
[ $step -lt 3 ] || unpacked nginx nginx
[ $step -lt 4 ] || unpacked prometheus prometheus

# The CUDA Toolkit's headers for a machine without the Toolkit. Nothing is linked with it: the driver is loaded at run time.
cuda_header() {
	rm -rf "$build/cuda" "$build/pip"
	mkdir -p "$build/cuda" && python3 -m venv "$build/pip" &&
		"$build/pip/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --only-binary :all: \
			--target "$build/cuda" nvidia-cuda-runtime==13.0.96
	local status=$?
	rm -rf "$build/pip"
	return $status
}
if [ -n "${CUDA_INCLUDE-}" ]; then
	say "cuda.h is in $CUDA_INCLUDE"
else
	cuda_header || say "no cuda.h here, and pip has none: host pools alone are built and tested"
fi
[ $step -lt 3 ] || make -s BUILD="$build" venv || say "pip has no packages here: the tests in Python are left out"
# The newest two releases of numba-cuda, whose signatures a test reads: their sources alone.
for release in 0.29.0 0.30.4; do
	if [ $step -lt 3 ] || [ -e "$build/numba-cuda/$release" ] || [ ! -x "$build/venv/bin/pip" ]; then continue; fi
	"$build/venv/bin/pip" install -q --disable-pip-version-check --no-deps --no-compile --target "$build/numba-cuda/$release" \
		"numba-cuda==$release" || say "pip has no numba-cuda $release here: its signatures are not compared"
done
[ $step -lt 4 ] || make -s BUILD="$build" venv-numba || say "pip has no numba-cuda here: the tests of Numba are left out"
exit 0
