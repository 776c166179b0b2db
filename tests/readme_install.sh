#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Prints the commands of one way to install gpushm, as the README's section "Install" has them, so
# that a test can run them. The way is the bold text before them.
#   tests/readme_install.sh 'From source'
set -u
cd "$(dirname "$0")/.." || exit 1
commands=$(sed -n '/^## Install$/,/^## /p' README.md | awk -v way="$1" '
	/^\*\*/ { on = index($0, "**" way "**") == 1 }
	on && sub(/^    /, "")')
[ -n "$commands" ] || {
	echo "README.md: its section \"Install\" has no commands for \"$1\"" >&2
	exit 1
}
echo "$commands"
