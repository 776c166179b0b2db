#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Names the Debian packages of what a build of the Python package lacks here; py.mk calls it.
set -u
read -ra cc <<<"$CC"
[ -z "$PYTHON_INCLUDE" ] || cc+=(-isystem "$PYTHON_INCLUDE")
compiles() { "${cc[@]}" -fsyntax-only -x c - 2>/dev/null; }

missing=()
command -v protoc-c >/dev/null || missing+=(protobuf-c-compiler)
echo 'int main(void) { return 0; }' | compiles || missing+=(gcc libc6-dev)
while read -r header package; do
	echo "#include <$header>" | compiles || missing+=("$package")
done <<'END'
uv.h libuv1-dev
protobuf-c/protobuf-c.h libprotobuf-c-dev
jansson.h libjansson-dev
nettle/sha2.h nettle-dev
xxhash.h libxxhash-dev
Python.h python3-dev
END
[ ${#missing[@]} -eq 0 ] || {
	echo "to build gpushm, install what these Debian packages hold: ${missing[*]}" >&2
	exit 1
}
