#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes a release of what is committed: builds and checks a clean clone, and puts what people install into
# build/release, with a bill of materials and checksums. Signs the checksums and a tag if git has a key for tags.
#   tests/release.sh ready VERSION       says what is missing; changes nothing
#   tests/release.sh make VERSION FOLDER
# RELEASE_CHECKS=skip leaves out "make deps check check-deep", and the trial of the files in a bare root: for a trial of this
# script. RELEASE_NEEDS=all refuses where a part can't be made because this machine lacks a tool; else a line says so.
set -eu
cd "$(dirname "$0")/.."
version=$2
key=$(git config user.signingkey || true)

fail() {
	echo "release: $1" >&2
	exit 1
}

ready() {
	[ -z "$(git status --porcelain)" ] || fail "there are changes that are not committed"
	grep -qE "^## $version \(20[0-9]{2}-[0-9]{2}-[0-9]{2}\)$" NEWS.md ||
		fail "NEWS.md has no heading \"## $version (YYYY-MM-DD)\": put the date there"
	! git rev-parse -q --verify "refs/tags/v$version" >/dev/null ||
		fail "v$version is there already: raise VERSION in the Makefile"
	tests/lint/versions.sh || fail "the files above have another version than the Makefile"
	[ -n "$key" ] || echo "release: nothing will be signed: git config user.signingkey names no key" >&2
}

# ---- the parts ----

# lacking PART: what this machine has not, of that which the part needs; nothing if it has all.
lacking() {
	local tool tools=()
	case $1 in
	dist) ;;
	sdist | wheel) tools=(python3) ;;
	wheel-aarch64) tools=(python3 apt-get dpkg-deb) ;;
	deb) tools=(dpkg-buildpackage dh dh_python3 chrpath) ;;
	rpm) tools=(rpmbuild chrpath) ;;
	image)
		tools=(dpkg-buildpackage dh dh_python3)
		command -v podman >/dev/null || tools+=(buildah)
		[ "${IMAGE_BASE-}" != mmdebstrap ] || tools+=(mmdebstrap)
		;;
	esac
	for tool in "${tools[@]}"; do command -v "$tool" >/dev/null || echo "no $tool"; done
	case $1 in wheel*) [ -n "$(make -s -C "$source" print-CUDA_INCLUDE | tr -d ' ')" ] || echo "no cuda.h" ;; esac
}

# Before anything is built, which takes an hour.
choose_parts() {
	local part what
	for part in dist sdist wheel wheel-aarch64 deb rpm image; do
		what=$(lacking $part | paste -sd ,)
		if [ -z "$what" ]; then
			parts+=("$part")
		elif [ "${RELEASE_NEEDS-}" = all ]; then
			fail "$part can't be made here: $what"
		else
			left_out+=("$part ($what)")
		fi
	done
}

# make_part PART: builds it in the clone, and moves its files to the folder.
make_part() {
	echo "release: $1"
	case $1 in
	wheel-aarch64) make -C "$source" wheel WHEEL_ARCH=aarch64 ;;
	image) IMAGE_DEBS=$folder make -C "$source" image ;;
	*) make -C "$source" "$1" ;;
	esac >"$folder/$1.log" 2>&1 || {
		tail -n 30 "$folder/$1.log" >&2
		fail "$1 could not be made"
	}
	rm "$folder/$1.log"
	case $1 in
	dist) mv "$source/build/gpushm-$version.tar.gz" "$folder/gpushm-$version-git.tar.gz" ;;
	sdist | wheel*) mv "$source"/build/dist/* "$folder/" ;;
	deb) mv "$source"/build/deb/*.deb "$folder/" ;;
	# Binary packages only where rpm is the system's own: elsewhere they need the libraries of another system.
	rpm) if rpm -q rpm >/dev/null 2>&1; then mv "$source"/build/rpm/*.rpm "$folder/"; else mv "$source"/build/rpm/*.src.rpm "$folder/"; fi ;;
	image) mv "$source/build/image/gpushm.tar" "$folder/gpushm-$version-image.tar" ;;
	esac
}

# ---- all of it ----

make_release() {
	local part parts=() left_out=()
	folder=$1
	source=$folder/source
	rm -rf "$folder"
	mkdir -p "$folder"
	git clone -q . "$source"
	[ "${RELEASE_CHECKS-}" = skip ] || make -C "$source" deps
	choose_parts
	[ "${RELEASE_CHECKS-}" = skip ] || make -C "$source" check check-deep
	for part in "${parts[@]}"; do make_part "$part"; done
	rm -rf "$source"
	systemd/sbom.py "$version" "$(git log -1 --format=%ct)" "$folder"/* >"$folder/.sbom"
	mv "$folder/.sbom" "$folder/gpushm-$version.spdx.json"
	(cd "$folder" && sha256sum -- * >SHA256SUMS)
	[ "${RELEASE_CHECKS-}" = skip ] || BARE=release RELEASE=$folder tests/bare_root.sh || fail "the files fail in a bare root"
	for part in "${left_out[@]}"; do echo "release: left out: $part"; done
	sign "$folder"
}

# Ends with the tag's name, and what is left to do.
sign() {
	if [ -n "$key" ]; then
		gpg --local-user "$key" --armor --detach-sign "$1/SHA256SUMS"
		git tag --sign --message "gpushm $version" "v$version"
		echo "release: $1 is ready and signed. Publish it, and push the tag: git push origin v$version"
	else
		echo "release: $1 is ready; it is not signed, and there is no tag. Sign SHA256SUMS, publish the folder, and tag:"
		echo "release: git tag --sign --message 'gpushm $version' v$version $(git rev-parse HEAD) && git push origin v$version"
	fi
	echo "v$version"
}

ready
[ "$1" != make ] || make_release "$3"
