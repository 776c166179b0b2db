#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Every shell script passes shellcheck, bash completion included; zsh it does not know.
set -u
cd "$(dirname "$0")/../.." || exit 1

command -v shellcheck >/dev/null || {
	echo "shell: skipped (no shellcheck)"
	exit 0
}
git ls-files --cached --others --exclude-standard -- '*.sh' '*.bash' .ci/run \
	'systemd/debian/*.p*' systemd/debian/tests/host-pools systemd/debian/tests/service | while read -r file; do
	[ -f "$file" ] && printf '%s\0' "$file"
done | xargs -0 -r shellcheck
