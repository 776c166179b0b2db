#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What tests/release.sh refuses, and says, in a clone that has the changes of this tree; it builds nothing. Prints a line
# like Check's.
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
version=$(sed -n 's/^VERSION := //p' Makefile)
unset RELEASE_NEEDS RELEASE_CHECKS
export GIT_CONFIG_GLOBAL=$stage/config GIT_CONFIG_NOSYSTEM=1
git config --file "$stage/config" user.name maintainer
git config --file "$stage/config" user.email maintainers@gpushm.example

a_clone() {
	git clone -q . "$stage/clone" && git diff --binary HEAD | git -C "$stage/clone" apply --allow-empty && commit
}
commit() { git -C "$stage/clone" add -A && git -C "$stage/clone" commit -qm change --allow-empty; }
# says WORDS COMMAND...: a command that fails, with these words.
says() {
	! "${@:2}" >"$stage/said" 2>&1 || return 1
	cat "$stage/said"
	grep -qF -- "$1" "$stage/said"
}
in_clone() { (cd "$stage/clone" && "$@"); }
ready() { in_clone tests/release.sh ready "$version"; }
dated() { sed -i "s/^## $version (.*/## $version (2026-01-31)/" "$stage/clone/NEWS.md" && commit; }
undated() { sed -i "s/^## $version (.*/## $version (unreleased)/" "$stage/clone/NEWS.md" && commit; }
other_header() { sed -i 's/^#define GPUSHM_VERSION_PATCH .*/#define GPUSHM_VERSION_PATCH 999/' "$stage/clone/client/gpushm.h" && commit; }

# With all programs of this machine but one.
without() {
	mkdir "$stage/tools" && find /usr/local/bin/ /usr/bin/ /bin/ -maxdepth 1 ! -type d ! -name "$1" -exec ln -sf -t "$stage/tools" {} + &&
		in_clone env PATH="$stage/tools" RELEASE_CHECKS=skip RELEASE_NEEDS=all tests/release.sh make "$version" "$stage/out"
}
# The Makefile itself leaves a file with the version.
nothing_is_built() { [ -d "$stage/out/source" ] && [ -z "$(find "$stage/out" -maxdepth 1 -type f; find "$stage/out/source/build" -type f ! -name 'version-*')" ]; }

check "there is a clone" a_clone
check "NEWS loses its date" undated
check "without a date it is refused" says "put the date there" ready
check "NEWS has a date" dated
check "with a date it is ready" ready
echo >>"$stage/clone/README.md"
check "a change that is not committed is refused" says "not committed" ready
in_clone git checkout -q README.md
check "without a tool, RELEASE_NEEDS=all refuses a part" says "rpm can't be made here: no rpmbuild" without rpmbuild
check "before anything is built" nothing_is_built
check "the header has another version" other_header
check "it is refused, with the file's name" says "client/gpushm.h: the version is" ready
in_clone git reset -q --hard HEAD^
in_clone git tag "v$version"
check "a tag of that version is refused" says "v$version is there already" ready
end_of_checks
