#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The packages for RPM: what each asks for is what the spec says, and no library of others but those whose headers the spec
# builds with; unpacked, their programs run. Prints a line like Check's.
#   rpm.sh BUILD     of packages that it builds in BUILD/rpm
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$1
spec=systemd/rpm/gpushm.spec
for tool in rpmbuild rpm2cpio cpio chrpath; do
	command -v $tool >/dev/null || {
		echo "skipped: packages for RPM: there is no $tool"
		exit 0
	}
done

packages_of_the_spec() { sed -n 's/^%package -n \(.*\)/\1/p; s/^%package \([a-z]*\)$/gpushm-\1/p' $spec | sort; }
has_each_package() { diff <(packages_of_the_spec) <(rpm -qp --qf '%{NAME}\n' "$build"/rpm/*."$(uname -m)".rpm | sort); }

builds_with_what_the_spec_names() {
	diff <(sed -n 's/^BuildRequires: *//p' $spec | sort) <(rpm -qp --requires "$build"/rpm/*.src.rpm | grep -v '^rpmlib(' | sort)
}

# The libraries of a -devel package, by the start of their names. Those that are not here are opened by name, or headers alone.
libraries_of() {
	case $1 in
	libuv-devel) echo libuv.so ;;
	protobuf-c-devel) echo libprotobuf-c.so ;;
	jansson-devel) echo libjansson.so ;;
	nettle-devel) echo libnettle.so ;;
	gnutls-devel) echo libgnutls.so ;;
	libmicrohttpd-devel) echo libmicrohttpd.so ;;
	systemd-devel) echo libsystemd.so ;;
	gcc) echo 'libc.so libm.so libdl.so libpthread.so libgcc_s.so ld-linux-x86-64.so ld-linux-aarch64.so' ;;
	esac
}
needs_no_other_library() {
	local known soname bad=0
	known=$(sed -n 's/^BuildRequires: *//p' $spec | while read -r name; do libraries_of "$name"; done | tr ' ' '\n')
	for soname in $(rpm -qp --requires "$build"/rpm/*.rpm 2>/dev/null | sed -n 's/^\(\(lib\|ld-\)[^( ]*\.so[^( ]*\).*/\1/p' | sort -u); do
		case $soname in libgpushm*) continue ;; esac
		grep -qxF "${soname%%.so*}.so" <<<"$known" || {
			echo "$soname comes with no BuildRequires of the spec"
			bad=1
		}
	done
	return $bad
}

# What one package asks of another one is there, in the same version.
asks_for_its_own_packages() {
	local line bad=0
	for line in $(rpm -qp --requires "$build"/rpm/*.rpm | sed -n 's/^\(lib\)\?\(gpushm[a-z0-9-]*\)\((x86-64)\)\? = \(.*\)/\1\2=\4/p' | sort -u); do
		rpm -qp --qf '%{NAME}=%{VERSION}-%{RELEASE}\n' "$build"/rpm/*.rpm | grep -qxF "$line" || {
			echo "$line is no package"
			bad=1
		}
	done
	return $bad
}

unpacks() {
	local package
	mkdir "$stage/root"
	for package in "$build"/rpm/*."$(uname -m)".rpm; do rpm2cpio "$package" | (cd "$stage/root" && cpio -idm --quiet) || return 1; done
}
runs() { LD_LIBRARY_PATH=$stage/root/usr/lib64 "$stage/root/usr/bin/$1" --version | grep -F "$(make -s print-VERSION | tr -d ' ')"; }
has_no_path_in_it() { ! grep -rlF "$(realpath "$build")" "$stage/root"; }

check "the spec builds" make BUILD="$build" rpm
check "each package of the spec is made" has_each_package
check "the source package asks for what the spec names" builds_with_what_the_spec_names
check "the packages need the libraries alone with which the spec builds" needs_no_other_library
check "a package of ours that another one needs is there" asks_for_its_own_packages
check "they unpack" unpacks
for program in gpushmd gpushmctl gpushm-exporter gpushm-relay; do check "$program of the packages runs" runs $program; done
check "no file names the folder in which it was built" has_no_path_in_it
end_of_checks
