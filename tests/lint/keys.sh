#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Each key of gpushmd.conf and gpushm-relay.conf has a line in the example file, a paragraph in its manual page, a reader
# beside the table, and a test that sets it.
set -u
cd "$(dirname "$0")/../.." || exit 1

bad=0
say() {
	echo "$1: $2"
	bad=1
}
# check SOURCE EXAMPLE PAGE FOLDER: keys are the names and members of SOURCE's tables.
check() {
	keys=$(sed -nE 's/^\t(DAEMON|LIMIT|POOL|CONFIG|ONCE)\("([a-z-]+)", ([a-z_]+),.*/\2 \3/p;
		s/^\t\{ "([a-z-]+)", offsetof\(struct [a-z_]+, ([a-z_]+)\).*/\1 \2/p' "$1")
	[ -n "$keys" ] || say "$1" "no keys found"
	while read -r key member; do
		grep -qE "^#?$key=" "$2" || say "$2" "nothing about $key"
		grep -qE "^\.It (.* , )?Ic $key( |\$)" "$3" || say "$3" "no paragraph about $key"
		git grep -qE "(->|\.)$member\b" -- "$4" || say "$1" "nothing reads $member of $key"
		git grep -qE "(^|[^a-z-]|[^\\]\\\\n)$key *=" -- tests || say "$1" "no test sets $key"
	done <<-EOF
		$keys
	EOF
}
check daemon/config/config_table.c systemd/gpushmd.conf man/gpushmd.conf.5 'daemon/*.[ch]'
check client/relay/config.c systemd/gpushm-relay.conf man/gpushm-relay.8 'client/relay/*.[ch]'
exit $bad
