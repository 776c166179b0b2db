#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Installs into a folder, builds a stranger's program against what is there with pkg-config, runs the
# installed programs, uninstalls, and looks for what was left. Prints a line like Check's.
#   tests/install.sh BUILD
set -u
cd "$(dirname "$0")/.." || exit 1
build=$1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh

# It looks for the library before it looks for the daemon.
loads() {
	"$stage/tree/usr/bin/gpushmctl" --socket /nonexistent/socket load x.safetensors x 2>&1 | tee /dev/stderr |
		grep -q /nonexistent/socket
}

no_files_left() {
	[ -z "$(find "$stage/tree" -type f -o -type l)" ]
}

stranger() {
	cat >"$stage/stranger.c" <<'C'
#include <gpushm.h>
#include <stdio.h>
#include <string.h>
int main(void)
{
	struct gpushm *c = 0;
	int r = gpushm_connect("/nonexistent/socket", &c);
	char header[32];
	snprintf(header, sizeof(header), "%d.%d.%d", GPUSHM_VERSION_MAJOR, GPUSHM_VERSION_MINOR,
		 GPUSHM_VERSION_PATCH);
	printf("%s, header %s: %s\n", gpushm_version(), header, gpushm_error());
	return r < 0 && strcmp(gpushm_version(), header) == 0 ? 0 : 1;
}
C
	export PKG_CONFIG_PATH=$stage/tree/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage/tree
	# shellcheck disable=SC2046 # flags are words
	"$@" -Wall -Werror -o "$stage/stranger" "$stage/stranger.c" $(pkg-config --cflags --libs gpushm) &&
		LD_LIBRARY_PATH=$stage/tree/usr/lib "$stage/stranger"
}

# A program that loads models, linked with shared and with static libraries.
loading_stranger() {
	cat >"$stage/loader.c" <<'C'
#include <gpushm_load.h>
#include <stdio.h>
int main(void)
{
	const char *source = "/nonexistent.safetensors";
	char key[65];
	int r = gpushm_load_key(&source, 1, 0, key);
	printf("%s\n", gpushm_error());
	return r == -2 && gpushm_error()[0] == '/' ? 0 : 1;
}
C
	export PKG_CONFIG_PATH=$stage/tree/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$stage/tree
	# shellcheck disable=SC2046 # flags are words
	"$@" -Wall -Werror -o "$stage/loader" "$stage/loader.c" $(pkg-config --cflags --libs gpushm-load) &&
		LD_LIBRARY_PATH=$stage/tree/usr/lib "$stage/loader" || return 1
	# shellcheck disable=SC2046
	"$@" -Wall -Werror $(pkg-config --cflags gpushm-load) -o "$stage/loader" "$stage/loader.c" -Wl,-Bstatic \
		-L"$stage/tree/usr/lib" -lgpushm-load -lgpushm -Wl,-Bdynamic -ljansson -lnettle -lprotobuf-c -lm &&
		"$stage/loader"
}

# A program that is linked with our archives and theirs would be refused by the linker.
archives_are_apart() {
	local lib name theirs=()
	for name in jansson nettle protobuf-c; do
		lib=$("${compiler[@]}" -print-file-name="lib$name.a")
		if [ -f "$lib" ]; then theirs+=("$lib"); fi
	done
	[ ${#theirs[@]} -gt 0 ] && [ -z "$(comm -12 <(defined "${theirs[@]}") <(defined "$stage"/tree/usr/lib/*.a) | tee /dev/stderr)" ]
}
defined() { nm "$@" 2>/dev/null | awk '$2 ~ /[TDBR]/ { print $3 }' | sort -u; }

# A process that only attaches loads nothing of what loaders need.
only_what_it_needs() {
	! readelf -d "$stage/tree/usr/lib/libgpushm.so" | grep -E 'NEEDED.*(jansson|nettle|xxhash)'
}

# What talks to systemd does it by libsystemd, and says so.
uses_libsystemd() {
	local program
	for program in gpushmd gpushm-relay gpushm-exporter; do
		[ -x "$stage/tree/usr/bin/$program" ] || continue
		readelf -d "$stage/tree/usr/bin/$program" | grep -q 'NEEDED.*libsystemd' || {
			echo "$program does not need it"
			return 1
		}
		"$stage/tree/usr/bin/$program" --version | grep -F 'with libsystemd' || return 1
	done
}
# Who attaches, or uses gpushmctl or Python, need not have it.
libraries_without_libsystemd() {
	! readelf -d "$stage"/tree/usr/lib/*.so "$stage/tree/usr/bin/gpushmctl" | grep 'NEEDED.*libsystemd'
}

# A program in C++ that owns what it opens, built by cmake. Without a daemon it catches the error.
stranger_by_cmake() {
	mkdir "$stage/cmake" && cat >"$stage/cmake/stranger.cc" <<'CC'
#include <gpushm.hpp>
#include <iostream>
static bool streams(const gpushmxx::connection &c)
{
	gpushm_array_spec array = {};
	gpushm_stream_spec spec = {};
	array.struct_size = sizeof(array);
	array.name = "a";
	gpushmxx::check(gpushm_dtype_parse("float32", &array.dtype));
	spec.arrays = &array;
	spec.n_arrays = 1;
	auto p = gpushmxx::create_stream(c, "s", spec);
	auto r = gpushmxx::open_stream(c, "s", GPUSHM_EVERY);
	auto f = gpushmxx::begin(p, GPUSHM_ON_HOST, 0);
	*static_cast<float *>(gpushm_array_host_ptr(f.array("a").get())) = 7;
	f.publish(GPUSHM_ON_HOST, "meta", 4);
	gpushmxx::begin(p, GPUSHM_ON_HOST, 0);
	p.reset();
	auto g = gpushmxx::next(r, GPUSHM_ON_HOST, 1000);
	bool right = g && g.seq() == 1 &&
		     *static_cast<float *>(gpushm_array_host_ptr(g.array("a").get())) == 7;
	g.release(GPUSHM_ON_HOST);
	try {
		gpushmxx::next(r, GPUSHM_ON_HOST, 1000);
	} catch (const gpushmxx::error &e) {
		return right && e.code() == std::errc::broken_pipe;
	}
	return false;
}
int main(int argc, char **argv)
{
	if (argc == 2) {
		auto c = gpushmxx::connect(argv[1]);
		if (!streams(c))
			return 2;
		auto w = gpushmxx::watch_new(c);
		gpushm_array_spec spec = {};
		spec.struct_size = sizeof(spec);
		spec.name = "a";
		gpushmxx::check(gpushm_dtype_parse("float32", &spec.dtype));
		auto b = gpushmxx::create(c, "x", &spec, 1);
		auto a = gpushmxx::get(b, "a");
		b.reset();
		*static_cast<float *>(gpushm_array_host_ptr(a.get())) = 1;
		gpushmxx::check(gpushm_publish(gpushm_array_buffer(a.get()), GPUSHM_SEALED));
		auto h = gpushmxx::open_handle(c, gpushmxx::handle(a));
		if (*static_cast<float *>(gpushm_array_host_ptr(h.get())) != 1)
			return 3;
		h.reset();
		a.reset();
		b = gpushmxx::open(c, "x", GPUSHM_READ);
		gpushmxx::suspend(b);
		if (!gpushmxx::suspended(b) || gpushm_buffer_host_ptr(b.get()))
			return 4;
		gpushmxx::resume(b, 1000);
		if (gpushmxx::suspended(b) || *static_cast<float *>(gpushm_buffer_host_ptr(b.get())) != 1)
			return 5;
		return gpushm_buffer_state(b.get()) == GPUSHM_SEALED ? 0 : 1;
	}
	try {
		auto c = gpushmxx::connect("/nonexistent/socket");
	} catch (const gpushmxx::error &e) {
		std::cout << e.code().value() << e.word() << e.what() << "\n";
		return e.code() == std::errc::no_such_file_or_directory ? 0 : 1;
	}
	return 1;
}
CC
	cat >"$stage/cmake/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.16)
project(stranger CXX)
set(CMAKE_CXX_STANDARD 17)
find_package(gpushm ${WANTED} REQUIRED)
add_executable(stranger stranger.cc)
target_link_libraries(stranger gpushm::gpushm)
target_compile_options(stranger PRIVATE -Wall -Wextra -Werror)
file(WRITE "${CMAKE_BINARY_DIR}/loader.cc" "#include <gpushm_load.h>\nint main() { return gpushm_load_key(0, 0, 0, 0) < 0 ? 0 : 1; }\n")
add_executable(loader "${CMAKE_BINARY_DIR}/loader.cc")
target_link_libraries(loader gpushm::gpushm-load)
CMAKE
	cmake -S "$stage/cmake" -B "$stage/cmake/build" -DCMAKE_PREFIX_PATH="$stage/tree/usr" -DWANTED="$series" &&
		cmake --build "$stage/cmake/build" && "$stage/cmake/build/stranger" && "$stage/cmake/build/loader" || return 1
	printf '[pool host]\nkind=host\nsize=1M\n' >"$stage/gpushmd.conf"
	"$stage/tree/usr/bin/gpushmd" --config "$stage/gpushmd.conf" --socket "$stage/socket" &
	for _ in {1..100}; do
		if [ -S "$stage/socket" ]; then break; fi
		sleep 0.05
	done
	"$stage/cmake/build/stranger" "$stage/socket"
	status=$?
	kill $! && wait $!
	return $status
}

not_found_by_cmake() {
	! cmake -S "$stage/cmake" -B "$stage/cmake/$1" -DCMAKE_PREFIX_PATH="$stage/tree/usr" -DWANTED="$1"
}

make -s BUILD="$build" DESTDIR="$stage/tree" PREFIX=/usr libdir=/usr/lib install >"$stage/.log" 2>&1 || cat "$stage/.log"
check "gpushmd runs from where it is installed" "$stage/tree/usr/bin/gpushmd" --version
check "the installed configuration is good" "$stage/tree/usr/bin/gpushmd" --check-config --config "$stage/tree/etc/gpushm/gpushmd.conf"
check "gpushmctl finds its library" "$stage/tree/usr/bin/gpushmctl" --version
check "gpushmctl finds the library that loads models" loads
read -ra compiler <<<"${CC:-cc}"
check "a C program builds with pkg-config and runs" stranger "${compiler[@]}"
check "a C program that loads models builds with pkg-config and runs" loading_stranger "${compiler[@]}"
check "our archives and those they need define no symbol twice" archives_are_apart
check "libgpushm needs no library of the loader" only_what_it_needs
check "the services use libsystemd" uses_libsystemd
check "the libraries and gpushmctl need no libsystemd" libraries_without_libsystemd
if command -v c++ >/dev/null; then
	for header in "$stage"/tree/usr/include/*.h; do
		check "${header##*/} is good C++" c++ -I"$stage/tree/usr/include" -x c++ -fsyntax-only -Wall -Werror "$header"
	done
fi
if command -v cmake >/dev/null; then
	series=$(sed -nE 's/^VERSION := ([0-9]+\.[0-9]+)\..*/\1/p' Makefile)
	check "a C++ program builds with cmake and runs" stranger_by_cmake
	check "cmake refuses a newer minor version" not_found_by_cmake 0.99
	check "cmake refuses an older one, whose programs must change" not_found_by_cmake 0.2
fi
check "every manual is installed" test "$(find "$stage/tree" -path '*/man/*' -type f -size +1 | wc -l)" -eq "$(find man -type f | wc -l)"
check "a function's name leads to gpushm(3)" grep -qx '.so man3/gpushm.3' "$stage/tree/usr/share/man/man3/gpushm_open.3"
check "gpushm_frame_next leads to gpushm_stream(3)" grep -qx '.so man3/gpushm_stream.3' "$stage/tree/usr/share/man/man3/gpushm_frame_next.3"
check "gpushm_save leads to gpushm_load(3)" grep -qx '.so man3/gpushm_load.3' "$stage/tree/usr/share/man/man3/gpushm_save.3"
if command -v man >/dev/null; then
	check "man finds a function" man -M "$stage/tree/usr/share/man" -w gpushm_open
fi
# A user's own PREFIX: nothing may be written outside of it.
installs_below_its_prefix() {
	make -n BUILD="$build" PREFIX="$stage/own" install >"$stage/.commands" &&
		! grep -E '(^|[ >"])/(etc|usr|lib|var)/' "$stage/.commands" &&
		make -s BUILD="$build" PREFIX="$stage/own" install && test -x "$stage/own/bin/gpushmd" &&
		make -s BUILD="$build" PREFIX="$stage/own" uninstall && [ -z "$(find "$stage/own" -type f)" ]
}
check "with a PREFIX of its own, nothing is written outside of it" installs_below_its_prefix

says_nothing_when_all_is_made() { make -s BUILD="$build" all >"$stage/.said" 2>&1 && ! grep -x '' "$stage/.said"; }
check "make all prints no empty line" says_nothing_when_all_is_made

refuses() { # TEXT COMMAND...
	! "${@:2}" >"$stage/.said" 2>&1 || return 1
	tail -n 5 "$stage/.said"
	grep -q "$1" "$stage/.said"
}
check "install-python asks for a folder" refuses pythondir= make -n BUILD="$build" DESTDIR="$stage/none" install-python
mkdir "$stage/bin"; cp -s /usr/bin/* "$stage/bin/" 2>"$stage/.log"; rm -f "$stage"/bin/{podman,buildah,dpkg-buildpackage}
check "make image asks for podman before it builds packages" refuses 'apt-get install podman' \
	env PATH="$stage/bin" make -s BUILD="$stage/none" image

release_says() { # TEXT VERSION
	"$stage/clone/tests/release.sh" ready "$2" >"$stage/.said" 2>&1 && return 1
	cat "$stage/.said"
	grep -q "$1" "$stage/.said"
}
if git clone -q . "$stage/clone" 2>"$stage/.log"; then
	check "a release has a date in NEWS.md" release_says 'no heading "## 9.9.9 (YYYY-MM-DD)"' 9.9.9
	echo change >>"$stage/clone/NEWS.md"
	check "a release is what is committed" release_says "not committed" 9.9.9
fi

make -s BUILD="$build" DESTDIR="$stage/tree" PREFIX=/usr libdir=/usr/lib uninstall >"$stage/.log" 2>&1 || cat "$stage/.log"
check "uninstall leaves no file" no_files_left
end_of_checks
