#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Packs the Python package. py.mk calls it, with VERSION and MAKE in the environment:
#   wheel.sh here BUILD VENV      a wheel for this machine of what BUILD has: BUILD/wheel
#   wheel.sh wheel BUILD [ARCH]   one for other machines, of a build of its own: BUILD/dist
#   wheel.sh tools BUILD          the compiler for it alone
#   wheel.sh sdist BUILD          what is in git at HEAD, with what pip looks for in the root: BUILD/dist
# The same commit gives the same bytes.
set -eu
cd "$(dirname "$0")/../.."
build=$2
dist=$build/dist
# Words, as MAKE has options.
read -ra make <<<"${MAKE:?}"
say() { printf '  %-6s %s\n' "$1" "$2"; }

# pack BUILD VENV
pack() {
	rm -rf "$1/wheel" "$1/python"/{setuptools,gpushm.egg-info}
	GPUSHM_MADE=1 BUILD=$1 "$2/bin/pip" wheel -q --disable-pip-version-check --no-deps --no-build-isolation \
		-w "$1/wheel" ./client/python
}

# ---- for other machines ----

# manylinux with the glibc below. zig is a C compiler that knows the symbols of each glibc; it comes from pip. libuv and
# protobuf-c are linked from Debian's archives, and auditwheel packs the other libraries. Where Debian's need a newer glibc
# than the wheel's, the linker or auditwheel says so: those of Debian 12 do not.
glibc=2.28
packages=(libuv1-dev libprotobuf-c-dev libjansson-dev nettle-dev)
venv=$build/venv-wheel

tools() {
	[ tests/requirements/venv-wheel.txt -nt "$venv/ready" ] || return 0
	say PIP "$venv"
	rm -rf "$venv"
	mkdir -p "$build"
	python3 -m venv "$venv"
	"$venv/bin/pip" install -q --disable-pip-version-check --no-compile -r tests/requirements/venv-wheel.txt
	ln -s "$(realpath "$venv"/lib/python3*/site-packages/ziglang/zig)" "$venv/zig"
	touch "$venv/ready"
}

# Debian's packages for another machine, in FOLDER. Nothing is installed: apt has folders of its own, as if this were such a
# machine without any package. libuv's archive calls gcc's atomics, of which zig lacks some; Debian's Python.h asks for the
# machine's pyconfig.h.
other_packages() { # FOLDER ARCH
	local name=$2 apt p
	[ ! -e "$1/versions" ] || return 0
	case $name in aarch64) name=arm64 ;; x86_64) name=amd64 ;; esac
	say GET "$1"
	rm -rf "$1"
	mkdir -p "$1/apt/lists/partial" "$1/apt/archives/partial"
	touch "$1/apt/status"
	apt=(apt-get -qy -o Dir::State="$1/apt" -o Dir::State::status="$1/apt/status" -o Dir::Cache="$1/apt"
		-o APT::Architecture="$name" -o APT::Architectures="$name" --no-install-recommends)
	{ "${apt[@]}" update && "${apt[@]}" install --download-only "${packages[@]}" libpython3-dev \
		"libgcc-$(gcc -dumpversion | cut -d. -f1)-dev"; } >"$1/apt/log" 2>&1 || {
		tail -n 3 "$1/apt/log" >&2
		return 1
	}
	for p in "$1"/apt/archives/*.deb; do
		dpkg-deb -x "$p" "$1"
		echo "$(dpkg-deb -f "$p" Package) $(dpkg-deb -f "$p" Version)"
	done >"$1/apt/versions"
	mv "$1/apt/versions" "$1/versions"
	rm -r "$1/apt"
}

# The modes of a wheel's files do not depend on umask.
same_modes() {
	"$venv/bin/python" - "$1" <<-'END'
		import os, sys, zipfile
		path = sys.argv[1]
		with zipfile.ZipFile(path) as old, zipfile.ZipFile(path + ".new", "w", zipfile.ZIP_DEFLATED) as new:
		    for item in old.infolist():
		        mode = 0o755 if item.is_dir() or item.external_attr >> 16 & 0o100 else 0o644
		        item.external_attr = (item.external_attr >> 16 & ~0o7777 | mode) << 16 | item.external_attr & 0xFFFF
		        new.writestr(item, old.read(item))
		os.replace(path + ".new", path)
	END
}

wheel() { # ARCH
	local arch=$1 work tag=manylinux_${glibc/./_}_$1 libs cc other='' ldflags=-s plat repair=() p
	work=$build/manylinux-$arch
	plat=$tag
	libs=$(pkg-config --variable=libdir libprotobuf-c)
	cc="$(realpath "$venv")/zig cc -target $arch-linux-gnu.$glibc -idirafter /usr/include -idirafter /usr/include/$(gcc -print-multiarch)"
	export SOURCE_DATE_EPOCH ZIG_GLOBAL_CACHE_DIR ZIG_LOCAL_CACHE_DIR
	SOURCE_DATE_EPOCH=$(git log -1 --format=%ct)
	ZIG_GLOBAL_CACHE_DIR=$(realpath "$build")/zig
	ZIG_LOCAL_CACHE_DIR=$ZIG_GLOBAL_CACHE_DIR
	if [ "$arch" != "$(uname -m)" ]; then
		other=$(realpath "$build")/packages-$arch
		other_packages "$other" "$arch"
		libs=$other/usr/lib/$arch-linux-gnu
		cc+=" -idirafter $other/usr/include"
		ldflags+=" $(echo "$other"/usr/lib/gcc/*/*/libgcc.a)"
		export _PYTHON_HOST_PLATFORM=linux-$arch
		# auditwheel takes "auto" alone for another machine, so the name is looked for afterwards.
		plat=auto
		repair=(env "LD_LIBRARY_PATH=$libs")
	fi
	export GPUSHM_LICENSES=$work/licenses
	rm -rf "$GPUSHM_LICENSES"
	mkdir -p "$GPUSHM_LICENSES" "$dist"
	for p in "${packages[@]}"; do cp "/usr/share/doc/$p/copyright" "$GPUSHM_LICENSES/${p%-dev}"; done
	cp /usr/share/common-licenses/LGPL-3 /usr/share/common-licenses/GPL-3 "$GPUSHM_LICENSES/"
	# Whose libraries are packed in: systemd/sbom.py reads it.
	if [ -n "$other" ]; then cat "$other/versions"; else dpkg-query -W "${packages[@]}" | sed 's/:[a-z0-9]*\t/ /; s/\t/ /'; fi |
		grep -E "^($(IFS='|' && echo "${packages[*]}")) " >"$GPUSHM_LICENSES/PACKED"
	"${make[@]}" BUILD="$work" CC="$cc" CFLAGS=-O2 LDFLAGS="$ldflags" ARCHIVES="$libs" python-core python-programs
	pack "$work" "$venv"
	rm -f "$dist"/*-"$tag".whl
	PATH=$(realpath "$venv")/bin:$PATH "${repair[@]}" auditwheel repair --plat "$plat" --only-plat -w "$dist" "$work"/wheel/*.whl
	same_modes "$(echo "$dist"/*-"$tag".whl)"
	ls "$dist"/*-"$tag".whl
}

# ---- the sources ----

sdist() {
	local name=gpushm-$VERSION stage=$build/sdist
	rm -rf "$stage"
	mkdir -p "$stage" "$dist"
	git archive --prefix="$name/" HEAD . ':(exclude).ci' | tar -x -C "$stage"
	cp client/python/setup.py "$stage/$name/"
	sed 's|^readme = .*|readme = "client/python/README.md"|' client/python/pyproject.toml >"$stage/$name/pyproject.toml"
	(
		python=$(realpath "$build")/venv/bin/python
		cd "$stage/$name"
		BUILD=../metadata "$python" -c 'from setuptools import build_meta; print(build_meta.prepare_metadata_for_build_wheel(".."))' >/dev/null
	)
	cp "$stage"/gpushm-*.dist-info/METADATA "$stage/$name/PKG-INFO"
	tar -C "$stage" --sort=name --mtime="@$(git log -1 --format=%ct)" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX-w \
		--format=ustar -c "$name" | gzip -9n >"$dist/$name.tar.gz"
	rm -rf "$stage"
	ls "$dist/$name.tar.gz"
}

case $1 in
here) pack "$build" "$3" ;;
wheel)
	tools
	wheel "${3:-$(uname -m)}"
	;;
tools) tools ;;
sdist) sdist ;;
esac
