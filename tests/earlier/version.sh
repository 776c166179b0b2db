# shellcheck shell=bash disable=SC2034,SC2154
# SPDX-License-Identifier: MIT
#
# Version 0.2, built from its commit into BUILD/0.2: scripts source this from the top folder, with BUILD's real path in
# $build. What was built stays there for the next run. A clone without history has no such commit, and nothing is fetched.
commit=f84341b26c3b3e7d25e0f6cf4b32c5815c3f2e4c
tree=$build/0.2

old_is_here() { GIT_NO_LAZY_FETCH=1 git cat-file -e "$commit^{commit}" 2>/dev/null; }
needs_old() { # SUBJECT
	old_is_here && return
	echo "skipped: $1: the commit of version 0.2, ${commit::8}, is not in this clone"
	exit 0
}

# once NAME COMMAND...: in its tree, if that was not done before, and for one script at a time. What this make was told is not
# for that one.
once() { (flock 9 && once_alone "$@") 9>"$tree.lock"; }
once_alone() {
	[ ! -e "$tree/build/$1-$commit" ] || return 0
	if [ ! -e "$tree/build/source-$commit" ]; then
		rm -rf "$tree" && mkdir -p "$tree/build" && git archive "$commit" | tar -x -C "$tree" || return 1
		touch "$tree/build/source-$commit"
	fi
	(cd "$tree" && unset MAKEFLAGS MFLAGS MAKELEVEL BUILD V && "${@:2}") && touch "$tree/build/$1-$commit"
}

# Host pools alone, and with them a wheel for this machine. pip is that of our own environment.
build_old() { once programs make -s -j"$(nproc)" CUDA_INCLUDE= build/{gpushmd,gpushmctl,libgpushm.so,libgpushm-load.so}; }
build_old_wheel() {
	once core make -s -j"$(nproc)" CUDA_INCLUDE= python-core python-programs && once wheel env GPUSHM_MADE=1 BUILD=build \
		"$build/venv/bin/python" -m pip wheel -q --disable-pip-version-check --no-deps --no-build-isolation -w build/wheel ./client/python
}

# With all kinds of pools, where there is cuda.h. In $old_root they are unpacked.
old_root=$tree/build/root
build_old_debs() {
	once debs env "DEB_BUILD_OPTIONS=nocheck noautodbgsym parallel=$(nproc)" make -s deb && once root unpack_debs build/deb build/root
}
unpack_debs() {
	local deb
	rm -rf "$2" && mkdir "$2" || return 1
	for deb in "$1"/*.deb; do dpkg-deb -x "$deb" "$2" || return 1; done
}
