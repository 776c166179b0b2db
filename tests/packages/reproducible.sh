#!/bin/bash
# SPDX-License-Identifier: MIT
#
# What a release is made of, built once more in a clone in another folder, with another umask, time zone and language, has
# the same bytes. Prints a line like Check's.
#   reproducible.sh BUILD         all of it but the image; the Debian packages are compared with those of BUILD/deb
#   reproducible.sh BUILD quick   the archive of the source, the source distribution, and their bill of materials
set -u
cd "$(dirname "$0")/../.." || exit 1
# shellcheck source=tests/lib/checks.sh
. tests/lib/checks.sh
build=$(realpath -m "$1")
again=$stage/and/again/build
goals=(dist)
export DEB_BUILD_OPTIONS=nocheck

# may GOAL COMMAND...: makes the goal, too, if the command says that this machine can.
may() {
	if "${@:2}" >/dev/null 2>&1; then goals+=("$1"); else echo "skipped: make $1 twice: this machine can't make it"; fi
}
wheel_tools() { [ -n "${CUDA_INCLUDE-}" ] && make -s BUILD="$build" wheel-tools; }
may sdist test -e "$build/venv/ready"
if [ "${2-}" != quick ]; then
	may deb dpkg-checkbuilddeps systemd/debian/control
	may rpm command -v rpmbuild
	may wheel wheel_tools
fi

# The tree as it is here, with its changes, and the tools that pip has installed.
another_tree() {
	local venv
	git clone -q . "${again%/*}" && mkdir "$again" || return 1
	git diff --binary HEAD | git -C "${again%/*}" apply --allow-empty || return 1
	for venv in "$build"/venv "$build"/venv-wheel; do [ ! -e "$venv" ] || ln -s "$(realpath "$venv")" "$again/"; done
	# Older than those environments, which make would install anew.
	touch -d @0 "${again%/*}"/tests/requirements/*.txt
}
made() { make BUILD="$build" "$@"; }
made_again() { (umask 027 && cd "${again%/*}" && env TZ=Pacific/Auckland LC_ALL=C.UTF-8 LANG=C.UTF-8 make BUILD="$again" "$@"); }

# What has been made again, by names below the build folder.
files() { (cd "$again" && find gpushm-*.tar.gz dist deb rpm \( -name '*.tar.gz' -o -name '*.whl' -o -name '*.deb' -o -name '*.rpm' \) 2>/dev/null | sort); }
list_materials() { # BUILD
	local names
	mapfile -t names < <(files | grep -v '\.rpm$')
	(cd "$1" && "$OLDPWD/systemd/sbom.py" 0.0 "$(git -C "$OLDPWD" log -1 --format=%ct)" "${names[@]}") >"$1/materials.json"
}
# rpm writes the spec with its folders into a package's header: of those packages what they hold is compared.
same() {
	case $1 in *.rpm) cmp <(rpm2cpio "$build/$1") <(rpm2cpio "$again/$1") && return || return 1 ;; esac
	cmp "$build/$1" "$again/$1" && return
	if command -v diffoscope >/dev/null; then diffoscope --max-report-size 4000 "$build/$1" "$again/$1"; fi
	return 1
}
# By a library that knows SPDX 2.3; it prints what is wrong.
is_valid() {
	"$build/venv/bin/python" -c '
import sys
from spdx_tools.spdx.parser.parse_anything import parse_file
from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document
wrong = validate_full_spdx_document(parse_file(sys.argv[1]), "SPDX-2.3")
sys.exit("\n".join(m.validation_message for m in wrong) or None)' "$build/materials.json"
}

check "there is another tree" another_tree
for goal in "${goals[@]}"; do
	if [ "$goal" != deb ] || [ -z "$(find "$build/deb" -name "*.deb" 2>/dev/null)" ]; then check "make $goal" made "$goal"; fi
	check "make $goal again" made_again "$goal"
done
check "each has made a file" test "$(files | wc -l)" -ge ${#goals[@]}
for file in $(files); do check "$file has the same bytes" same "$file"; done
check "the bill of materials can be made" list_materials "$build"
check "and again" list_materials "$again"
check "it has the same bytes" same materials.json
if "$build/venv/bin/python" -c 'import spdx_tools' 2>/dev/null; then
	check "it is valid SPDX 2.3" is_valid
else
	echo "skipped: the bill of materials is not validated: there is no spdx-tools (make venv)"
fi
end_of_checks
