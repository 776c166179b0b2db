#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Those libraries of a gpu-bundle that this machine lacks: tests/gpu/lacking.sh BUILD makes a folder of links to them, for
# LD_LIBRARY_PATH, and prints its path. A copy of what the machine has would hide it from the machine's own libraries:
# Debian's libnettle.so.8 is too old for Ubuntu's libgnutls.
set -eu
deps=$(realpath -m "$1")/deps
mkdir -p "$deps/lacking"
there=$(PATH=$PATH:/usr/sbin:/sbin ldconfig -p)
for library in "$deps"/*.so*; do
	link=$deps/lacking/${library##*/}
	[ ! -e "$library" ] || [ -e "$link" ] || grep -qF "	${library##*/} (" <<<"$there" || ln -sf "$library" "$link"
done
echo "$deps/lacking"
