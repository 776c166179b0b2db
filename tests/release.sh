#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Makes a release of what is committed: builds and checks a clean clone, and puts what people install into
# build/release, with checksums. Signs the checksums and a tag if git has a key for tags.
#   tests/release.sh ready VERSION       says what is missing; changes nothing
#   tests/release.sh make VERSION FOLDER
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
	[ -n "$key" ] || echo "release: nothing will be signed: git config user.signingkey names no key" >&2
}

make_release() {
	local folder=$1 source=$1/source
	rm -rf "$folder"
	mkdir -p "$folder"
	git clone -q . "$source"
	make -C "$source" deps check check-deep
	make -C "$source" dist sdist wheel deb
	cp "$source/build/gpushm-$version.tar.gz" "$folder/gpushm-$version-git.tar.gz"
	cp "$source"/build/dist/* "$source"/build/deb/*.deb "$folder/"
	rm -rf "$source"
	(cd "$folder" && sha256sum -- * >SHA256SUMS)
	if [ -n "$key" ]; then
		gpg --local-user "$key" --armor --detach-sign "$folder/SHA256SUMS"
		git tag --sign --message "gpushm $version" "v$version"
		echo "release: $folder and the tag v$version are ready: git push origin v$version"
	else
		echo "release: $folder is ready; it is not signed, and there is no tag"
	fi
}

ready
[ "$1" != make ] || make_release "$3"
