#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Builds packages of the tree's tracked files as they are, in a copy of the tree below BUILD. The same files and the same
# commit give the same bytes, in any folder.
#   packages.sh deb BUILD VERSION       Debian packages into BUILD/deb
#   packages.sh source BUILD VERSION    what they are built from, in BUILD/deb-source
#   packages.sh rpm BUILD VERSION       packages for RPM and their source package into BUILD/rpm, without tests
# systemd/debian and systemd/rpm have the packaging.
# CUDA_INCLUDE is the folder of cuda.h. Without it the packages share host memory only.
set -eu -o pipefail
cd "$(dirname "$0")/.."

fail() {
	echo "packages: $*" >&2
	exit 1
}

# All times in the packages: that of the commit. An unpacked archive has it as the time of its files.
commit_time() {
	git log -1 --format=%ct 2>/dev/null || stat -c %Y NEWS.md
}

# The tracked files as they are, in the folder $source. In an unpacked archive: all files outside of BUILD.
export_files() {
	rm -rf "${source%/*}"
	mkdir -p "$source"
	if [ -e .git ]; then
		git ls-files -z | while IFS= read -r -d '' file; do
			[ ! -e "$file" ] || printf '%s\0' "$file"
		done
	else
		find . -path "./$(realpath -m --relative-to=. "$build")" -prune -o -type f -printf '%P\0'
	fi | tar -c --null -T - --mtime="@$SOURCE_DATE_EPOCH" | tar -x -C "$source"
}

export_source() {
	export_files
	cp -r "$source/systemd/debian" "$source/debian"
	mkdir -p "$source/debian/source"
	echo '3.0 (native)' >"$source/debian/source/format"
	cat >"$source/debian/changelog" <<-CHANGELOG
		gpushm ($version) unstable; urgency=medium

		  * NEWS.md says what has changed.

		 -- gpushm authors <maintainers@gpushm.example>  $(LC_ALL=C date -u -R -d "@$SOURCE_DATE_EPOCH")
	CHANGELOG
}

# Of the long log, as it comes: debhelper's steps, how many files are compiled, and what the tests say.
progress() {
	local line files=0
	while IFS= read -r line; do
		case $line in
		"   dh_"* | "   debian/rules "*) echo "packages: dh_${line##*[ _]dh_}" ;;
		*" -c -o "*) [ $((++files % 100)) -ne 0 ] || echo "packages: $files files are compiled" ;;
		"== "* | "   "*" passed, "*) echo "packages: $line" ;;
		esac
	done
}

build_packages() {
	command -v dpkg-buildpackage >/dev/null || fail "there is no dpkg-buildpackage: apt-get install dpkg-dev debhelper"
	mkdir -p "$build/deb"
	rm -f "$build"/deb/*
	echo "packages: this takes some minutes; all that is said goes to $build/deb.log"
	(cd "$source" && dpkg-buildpackage --build=binary --no-sign) 2>&1 | tee "$build/deb.log" | progress || {
		tail -n 40 "$build/deb.log" >&2
		fail "dpkg-buildpackage failed; all that it said is in $build/deb.log"
	}
	mv "$build"/deb-source/*.{deb,buildinfo,changes} "$build/deb/"
	rm -rf "$build/deb-source"
	ls "$build"/deb/*.deb
	[ -n "${CUDA_INCLUDE-}" ] || echo "packages: without cuda.h they share host memory only"
}

# What the spec uses and rpm itself does not define: packages of Fedora's do, systemd-rpm-macros and python3-devel.
rpm_macros() {
	local name value
	while read -r name value; do
		[ -n "$(rpm --eval "%{?$name}")" ] || printf '%%%s %s\n' "$name" "$value"
	done <<-'MACROS'
		_docdir /usr/share/doc
		_unitdir /usr/lib/systemd/system
		_sysusersdir /usr/lib/sysusers.d
		_modulesloaddir /usr/lib/modules-load.d
		_journalcatalogdir /usr/lib/systemd/catalog
		python3_sitearch /usr/lib64/python3/site-packages
	MACROS
	# The same bytes whenever, wherever and by whom they are built.
	printf '%%%s\n' '_buildhost localhost' 'use_source_date_epoch_as_buildtime 1' 'clamp_mtime_to_source_date_epoch 1' \
		'source_date_epoch_from_changelog 0' "_topdir $build/rpm-source" '_builddir %{_topdir}' '_sourcedir %{_topdir}' \
		"_specdir %{_topdir}" "_rpmdir $build/rpm" "_srcrpmdir $build/rpm" '_build_name_fmt %%{NAME}-%%{VERSION}-%%{RELEASE}.%%{ARCH}.rpm' \
		${CUDA_INCLUDE:+"_cuda_include $CUDA_INCLUDE"}
}

build_rpms() {
	local top=$build/rpm-source known=()
	command -v rpmbuild >/dev/null || fail "there is no rpmbuild: apt-get install rpm chrpath"
	# Where Debian's tools have installed what the spec asks for, rpm knows nothing of it.
	rpm -q rpm >/dev/null 2>&1 || known=(--nodeps)
	export_files
	tar -C "$top" --sort=name --mtime="@$SOURCE_DATE_EPOCH" --owner=0 --group=0 --numeric-owner --mode=u+rwX,go+rX-w \
		-c "${source##*/}" | gzip -9n >"$top/${source##*/}.tar.gz"
	install -m 644 "$source/systemd/rpm/gpushm.spec" "$top/"
	chmod 644 "$top/${source##*/}.tar.gz"
	# Not in optflags: a package has those in its header, and they would name the folder.
	EXTRA_CFLAGS="-ffile-prefix-map=$top=/usr/src ${CUDA_INCLUDE:+-ffile-prefix-map=$CUDA_INCLUDE=/usr/include}"
	export EXTRA_CFLAGS
	rm -rf "$source" "$build/rpm"
	rpm_macros >"$top/macros"
	(umask 022 && rpmbuild -ba "${known[@]}" --without check --load "$top/macros" "$top/gpushm.spec") >"$build/rpm.log" 2>&1 || {
		tail -n 40 "$build/rpm.log" >&2
		fail "rpmbuild failed; all that it said is in $build/rpm.log"
	}
	rm -rf "$top"
	ls "$build"/rpm/*.rpm
	[ ${#known[@]} -eq 0 ] || echo "packages: the binary packages are linked with this machine's libraries, for tests; the source package is for all"
}

build=$(realpath -m "$2") version=$3
source=$build/deb-source/gpushm-$version
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(commit_time)}
export SOURCE_DATE_EPOCH
# dpkg-buildpackage has flags and a make of its own.
unset CC CFLAGS LDFLAGS MAKEFLAGS MAKELEVEL MFLAGS BUILD
case $1 in
source) export_source ;;
deb)
	export_source
	build_packages
	;;
rpm)
	source=$build/rpm-source/gpushm-$version
	build_rpms
	;;
*) fail "deb, source or rpm?" ;;
esac
