#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes the wheel and the source distribution, installs each into an empty virtual environment, and
# uses what is there: the README's commands, a buffer that outlives its daemon, pages, completions.
# Prints a line like Check's.
#   tests/wheel.sh BUILD
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
tag=manylinux_2_28_x86_64
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
trap 'stop_daemon; rm -rf "$stage"' EXIT

skip() {
	echo "skipped: a wheel: $*"
	exit 0
}

# The daemon that readme_commands has started, as the child of a shell that has ended.
stop_daemon() {
	if [ -n "${daemon-}" ]; then
		kill "$daemon" 2>/dev/null
		until_true daemon_has_ended
	fi
	daemon=
}
daemon_has_ended() { ! kill -0 "$daemon"; }

until_true() {
	for _ in {1..200}; do
		if "$@" >/dev/null 2>&1; then return 0; fi
		sleep 0.05
	done
	"$@"
}

# inside ENV COMMAND...: nothing of this machine's settings, and no compiler.
inside() {
	env -i PATH="$stage/$1/bin:$stage/tools" HOME="$stage" XDG_RUNTIME_DIR="$stage" LANG=C.UTF-8 "${@:2}"
}
new_env() { python3 -m venv "$stage/$1"; }
pip_settings() { env | grep -E '^(PIP_[A-Z_]*|[a-z]*_proxy|[A-Z]*_PROXY|SSL_CERT_FILE)='; }

# ---- the wheel ----

is_manylinux() {
	PATH=$build/venv-wheel/bin:$PATH auditwheel show "$wheel" | tr '\n' ' ' | grep -F "consistent with the following platform tag: \"$tag\""
}

# By the tags that pip compares: with a free-threaded Python it says "is not a supported wheel on this platform", and goes on
# to the source distribution, which says why.
is_for_python_with_gil() {
	"$build/venv-wheel/bin/python" -c '
import sys
from packaging import tags, utils
wheel = utils.parse_wheel_filename(sys.argv[1])[3]
fits = {abi: bool(wheel & set(tags.cpython_tags((3, int(abi[3:5])), [abi], [sys.argv[2]])))
        for abi in ("cp310", "cp311", "cp314", "cp313t", "cp314t")}
print(fits)
sys.exit([abi for abi in fits if fits[abi]] != ["cp311", "cp314"])' "${wheel##*/}" "$tag"
}

# Else an empty machine could not load it.
needs_only_libc() {
	local file others
	unzip -q "$wheel" -d "$stage/unpacked" || return 1
	while read -r file; do
		others=$(readelf -d "$file" 2>/dev/null | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p' |
			grep -vE '^(lib(c|m|dl|pthread)\.so\.[0-9]+|ld-linux-x86-64\.so\.2|libgpushm\.so\.[0-9]+|lib(jansson|nettle)-[0-9a-f]+\.so.*)$')
		[ -z "$others" ] || {
			echo "$file needs $others"
			return 1
		}
	done < <(find "$stage/unpacked" -type f)
}

without_libsystemd() { inside wheel gpushmd --version | grep -F 'without libsystemd'; }

has_licences() {
	local name
	for name in LICENSE libuv1 libprotobuf-c libjansson nettle LGPL-3 PACKED; do
		[ -n "$(find "$stage"/unpacked/*.dist-info/licenses/"$name" -size +0)" ] || return 1
	done
}

# The same commit gives the same bytes, whenever it is packed.
same_bytes() {
	cp "$wheel" "$stage/first.whl" && cp "$sdist" "$stage/first.tar.gz" && make -s BUILD="$build" EXTRA_CFLAGS=-Werror wheel sdist &&
		cmp "$wheel" "$stage/first.whl" && cmp "$sdist" "$stage/first.tar.gz"
}

# As the README has it; "make wheel" has run.
readme_commands() {
	local commands
	commands=$(tests/readme_install.sh 'A wheel' | sed -e '/^make /d' -e "s|build/dist|$build/dist|") || return 1
	[ "$(wc -l <<<"$commands")" = 2 ] || return 1
	new_env wheel && inside wheel bash -c "set -m; ${commands/%&/>$stage/log 2>&1 & echo \$! >$stage/pid}" || return 1
	daemon=$(cat "$stage/pid") && until_true inside wheel gpushmctl status
}

# The README's first block, from the installation to what it prints; its daemon ends with it.
first_block() {
	local block
	block=$(awk '/^```sh$/ { on = 1; next } /^```$/ && on { exit } on' README.md)
	block=$(sed -e '/^make /d' -e "s|build/dist|$build/dist|" -e "s|/tmp/first|$stage/first|g" <<<"$block")
	mapfile -t settings < <(pip_settings)
	env -i PATH="$PATH" HOME="$stage" LANG=C.UTF-8 "${settings[@]}" bash -euc "$block; wait || true" >"$stage/said" &&
		grep -Fx "$(sed -n '/^```text$/{n;p;q}' README.md)" "$stage/said"
}

shares_an_array() {
	inside wheel python -c '
import gpushm
with gpushm.create("x", (3, 4), "float32") as x:
    memoryview(x).cast("B").cast("f")[:] = memoryview(bytes(range(48))).cast("f")
    x.publish()
' && inside wheel python -c '
import gpushm
with gpushm.open("x") as x:
    assert bytes(memoryview(x).cast("B")) == bytes(range(48)), bytes(x)
' && inside wheel gpushmctl save x "$stage/x.safetensors" && inside wheel gpushmctl load "$stage/x.safetensors" y &&
		inside wheel gpushmctl ls
}

# The process that serves, not its keeper.
server() { inside wheel gpushmctl status --json=short | sed -n 's/.*"pid": *\([0-9]*\).*/\1/p'; }
has_another_server() { [ -n "$(server)" ] && [ "$(server)" != "$1" ]; }
outlives_its_daemon() {
	local before
	before=$(server)
	inside wheel gpushmctl stat x >"$stage/before" && kill -9 "$before" && until_true has_another_server "$before" || return 1
	inside wheel gpushmctl get x "$stage/x.npy" && inside wheel python -c '
import sys
assert open(sys.argv[1], "rb").read().endswith(bytes(range(48)))' "$stage/x.npy"
}

# gpushmctl is started by Python, which ignores SIGPIPE, and ends all the same when its reader has gone.
ends_by_sigpipe() {
	inside wheel bash -c 'exec 3> >(exit 0); wait $!; gpushmctl ls >&3; [ $? = 141 ]'
}

has_pages() {
	local page
	for page in man/*.[1-8]; do
		[ -s "$stage/wheel/share/man/man${page##*.}/${page##*/}" ] || return 1
	done
	[ -s "$stage/wheel/share/bash-completion/completions/gpushmctl" ] && [ -s "$stage/wheel/share/zsh/site-functions/_gpushmctl" ]
}

# Of a program that is not in the wheel, the page says so.
pages_say_what_is_not_there() {
	local page name
	for page in man/*.[18]; do
		name=${page##*/}
		[ -x "$stage/wheel/bin/${name%.*}" ] || grep -q "not in the wheel" "$stage/wheel/share/man/man${page##*.}/$name" || {
			echo "$name"
			return 1
		}
	done
}

leaves_nothing() {
	inside wheel pip uninstall -qy gpushm && [ -z "$(find "$stage/wheel" -name '*gpushm*' | tee /dev/stderr)" ]
}

# ---- the source distribution ----

has_all_sources() {
	tar -tzf "$sdist" | grep -v '/PKG-INFO$\|/$\|^gpushm-[^/]*/\(setup.py\|pyproject.toml\)$' | sed 's|^[^/]*/||' | sort |
		diff - <(git ls-tree -r --name-only HEAD | grep -v '^\.ci/' | sort)
}

builds() {
	local settings
	mapfile -t settings < <(pip_settings)
	new_env source && env "${settings[@]}" CFLAGS=-O0 "$stage/source/bin/pip" install -q --disable-pip-version-check "$sdist" &&
		inside source gpushmd --version && inside source gpushmctl --version && inside source python -c 'import gpushm'
}

# refused WORDS COMMAND...
refused() {
	! "${@:2}" >"$stage/.refused" 2>&1 || return 1
	cat "$stage/.refused"
	grep -qE "$1" "$stage/.refused"
}
unpack_source() {
	mkdir "$stage/tree" && tar -xzf "$sdist" -C "$stage/tree" --strip-components=1
}
pip_without_headers() {
	CC="${CC:-cc} -nostdinc" "$build/venv/bin/pip" wheel --disable-pip-version-check --no-build-isolation -w "$stage" "$sdist"
}
setup_without_gil() {
	(cd "$stage/tree" && "$python" -c '
import runpy, sys, sysconfig
sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 1
sys.argv = ["setup.py", "--version"]
runpy.run_path("setup.py")')
}

build=$(realpath "$build")
python=$build/venv/bin/python
[ "$(uname -m)" = x86_64 ] || skip "it is made on x86-64 only"
command -v unzip >/dev/null || skip "there is no unzip"
[ -x "$python" ] || skip "there is no build/venv"
make -s BUILD="$build" wheel-tools >"$stage/.out" 2>&1 || skip "pip has no compiler for it: $(tail -n 1 "$stage/.out")"
mkdir "$stage/tools"
for tool in bash env; do ln -s "$(command -v $tool)" "$stage/tools/"; done
cd "$(pwd -P)" || exit 1

check "make wheel and make sdist leave their files in dist" make -s BUILD="$build" EXTRA_CFLAGS=-Werror wheel sdist
wheel=$(echo "$build"/dist/gpushm-*-cp311-abi3-$tag.whl)
sdist=$(echo "$build"/dist/gpushm-*.tar.gz)
check "auditwheel accepts the wheel" is_manylinux
check "pip takes the wheel for each Python with a GIL alone" is_for_python_with_gil
check "the wheel needs the C library alone" needs_only_libc
check "the wheel has the licences of what it packs" has_licences
check "the same commit gives the same bytes" same_bytes
check "the README's first block runs as it stands" first_block
check "the README's commands install and start it" readme_commands
check "its daemon is built without libsystemd" without_libsystemd
check "two processes share an array, and a file is saved and loaded" shares_an_array
check "a buffer outlives a killed daemon, without systemd" outlives_its_daemon
check "gpushmctl ends when its reader has gone" ends_by_sigpipe
check "pages and completions are installed" has_pages
check "pages of other programs say where those are" pages_say_what_is_not_there
stop_daemon
check "pip removes all of it" leaves_nothing
check "the source distribution has what is in git" has_all_sources
check "the source distribution builds and runs" builds
check "a missing header is named with its package" refused 'libuv1-dev.*libjansson-dev' pip_without_headers
check "the source distribution can be unpacked" unpack_source
check "a free-threaded Python is refused" refused 'free-threaded' setup_without_gil
end_of_checks
