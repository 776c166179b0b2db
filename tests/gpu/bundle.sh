#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes a build ready for a machine with a GPU: adds libraries and Python packages that it may lack, and removes what is not
# needed there. gpu.mk calls it: tests/gpu/bundle.sh BUILD PYTHON-VERSION
set -eu
build=$1
packages=(pytest pluggy iniconfig packaging pygments ml_dtypes gunicorn pyte wcwidth filecheck)

mkdir -p "$build/deps"
mapfile -t programs < <(find "$build" -maxdepth 1 -type f -perm -100 -name 'gpushm*')
ldd "${programs[@]}" "$build/libgpushm-load.so" "$build"/tests/gpu/test_* |
	awk '/lib(uv|protobuf-c|check|subunit|jansson|nettle|microhttpd|systemd|cap|gcrypt|gpg-error|lzma|zstd|lz4)\.so/ { print $3 }' | sort -u |
	xargs -I{} cp -L {} "$build/deps/"
if [ ! -e "$build/deps/python/ready" ]; then
	python3 -m venv "$build/pip"
	"$build/pip/bin/pip" install -q --disable-pip-version-check --no-compile --no-deps --upgrade --target "$build/deps/python" \
		--only-binary :all: --python-version "$2" --platform manylinux_2_17_x86_64 "${packages[@]}"
	rm -rf "$build/pip"
	touch "$build/deps/python/ready"
fi
rm -rf "$build/obj" "$build/tests/unit" "$build/fakecuda"
strip "$build"/tests/*/test_* "$build"/tests/gpushmd-* "$build"/tests/bench/* "$build"/{gpushmd,gpushmctl,gpushm-bench} "$build"/python/gpushm/*.so*
