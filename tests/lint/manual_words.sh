#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The manual pages and the programs have the same words: options and commands, configuration keys,
# functions, environment variables, and the protocol's requests, fields and codes. This script prints
# each word that only one of the two has. Needs the build folder.
set -u
cd "$(dirname "$0")/../.." || exit 1

build=${BUILD:-build}
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT
bad=0

# same WHAT MANUAL: the words in $folder/there and in $folder/told, one a line.
same() {
	sort -u "$folder/there" >"$folder/a"
	sort -u "$folder/told" >"$folder/b"
	[ -s "$folder/a" ] || echo "$1: the program has none" >>"$folder/bad"
	comm -23 "$folder/a" "$folder/b" | sed "s|^|$2: does not describe $1 |" >>"$folder/bad"
	comm -13 "$folder/a" "$folder/b" | sed "s|^|$2: describes $1 that the program does not have: |" >>"$folder/bad"
}
: >"$folder/bad"

# keys_in_use TABLE EXAMPLE FOLDER: the example has a line for each key of the table, a test sets it, and a file of the folder
# reads its value.
keys_in_use() {
	sed -nE 's/^\t[A-Z]+\("([a-z-]+)", ([a-z_]+),.*/\1 \2/p; s/^\t\{ "([a-z-]+)", offsetof\([a-z_ ]+, ([a-z_]+)\).*/\1 \2/p' "$1" |
		while read -r key member; do
			grep -qE "^#?$key=" "$2" || echo "$2: has no line for $key="
			grep -rqE "(^|[^a-z-]|\\n)$key=" tests --include='*.[ch]' --include='*.py' || echo "tests: none sets $key="
			find "$3" -name '*.c' ! -path 'daemon/config/*' -exec grep -qE "(->|\.)$member\>" {} + ||
				echo "$1: nothing reads the value of $key="
		done >>"$folder/bad"
}

# Long options of a program's --help, and of the manual's lines on standard input.
options_there() { "$@" --help | sed -n 's/^  *\(-[a-z0-9], \)*--\([a-z-]*\).*/\2/Ip'; }
options_told() { grep -o '\\-[a-z][a-z-]*' | sed 's/^\\-//'; }
synopsis() { sed -n '/^\.Sh SYNOPSIS/,/^\.Sh DESCRIPTION/p' "$1"; }

options_there "$build/gpushmd" >"$folder/there"
options_told <man/gpushmd.8 >"$folder/told"
same "gpushmd's option" man/gpushmd.8

if [ -x "$build/gpushm-exporter" ]; then
	options_there "$build/gpushm-exporter" >"$folder/there"
	synopsis man/gpushm-exporter.8 | options_told >"$folder/told"
	same "gpushm-exporter's option" man/gpushm-exporter.8
fi
if [ -x "$build/gpushm-relay" ]; then
	options_there "$build/gpushm-relay" >"$folder/there"
	synopsis man/gpushm-relay.8 | options_told >"$folder/told"
	same "gpushm-relay's option" man/gpushm-relay.8
fi
{
	sed -n 's/^	\(CONFIG\|ONCE\)("\([a-z-]*\)".*/\2/p' client/relay/config.c
	sed -n 's/^	{ "\([a-z-]*\)", offsetof.*/\1/p' client/relay/config.c
} >"$folder/there"
grep '^\.It Ic' man/gpushm-relay.8 | grep -oE 'Ic [a-z-]+ Ns = ' | sed 's/Ic //; s/ Ns = //' >"$folder/told"
same "gpushm-relay's key" man/gpushm-relay.8
keys_in_use client/relay/config.c systemd/gpushm-relay.conf client/relay
# Each metric, without _total and the like. Macros add the beginnings of some.
sed -nE 's/^\t(POOLS|CACHE)\("([a-z_]*)",.*/gpushm_pool_\2/p; s/^\tSTREAMS\("([a-z_]*)",.*/gpushm_stream_\1/p
	s/^\tOWNERS\("([a-z_]*)",.*/gpushm_owner_\1/p' client/ctl/snapshot.c >"$folder/there"
grep -ohE '"gpushm_[a-z_]*[a-z]"' client/ctl/snapshot.c client/common/exposition.c | tr -d '"' >>"$folder/there"
grep -oE '\<gpushm_[a-z_]+' man/gpushm-exporter.8 | sed 's/_total$//; s/_info$//' >"$folder/told"
same "metric" man/gpushm-exporter.8
grep -ohE '"gpushm_relay_[a-z_]*[a-z]"' client/relay/metrics.c | tr -d '"' >"$folder/there"
grep -oE '\<gpushm_relay_[a-z_]+' man/gpushm-relay.8 | sed 's/_total$//' >"$folder/told"
same "relay's metric" man/gpushm-relay.8

# The synopsis has the options of each command; "buffer options" are described in a list below.
page=man/gpushmctl.1
"$build/gpushmctl" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' >"$folder/there"
cp "$folder/there" "$folder/commands"
synopsis $page | sed -n 's/^\.Cm //p' >"$folder/told"
same "gpushmctl's command" $page
options_there "$build/gpushmctl" >"$folder/common"
sed -n '/^\.It Fl p , Fl .-pool/,/^\.El/p' $page | grep '^\.It' | options_told >"$folder/buffer"
while read -r command; do
	options_there "$build/gpushmctl" "$command" | grep -vxF -f "$folder/common" >"$folder/there"
	echo version >>"$folder/there"
	echo version >"$folder/told"
	synopsis $page | awk -v want="$command" '$1 == ".Nm" { on = 0 } $1 == ".Cm" { on = $2 == want } on' >"$folder/own"
	options_told <"$folder/own" >>"$folder/told"
	grep -q 'buffer options' "$folder/own" && cat "$folder/buffer" >>"$folder/told"
	same "$command's option" $page
done <"$folder/commands"
cp "$folder/common" "$folder/there"
sed -n '/^\.Sh DESCRIPTION/,/^\.Ss Looking around/p' $page | grep '^\.It' | options_told >"$folder/told"
same "gpushmctl's option" $page

sed -n 's/.*\<\(DAEMON\|LIMIT\|POOL\)("\([a-z-]*\)".*/\2/p' daemon/config/config_table.c >"$folder/there"
grep -o '^\.It Ic [a-z-]*' man/gpushmd.conf.5 | sed 's/.* //' >"$folder/told"
same "key" man/gpushmd.conf.5
keys_in_use daemon/config/config_table.c systemd/gpushmd.conf daemon

# gpushm(3) and gpushm_load(3) have the prototype of each function as the header declares it, and
# describe it.
functions() { # HEADERS PAGE
	# shellcheck disable=SC2086
	cat $1 | grep -v '^#include' | ${CC:-cc} -E -P -x c - | tr -s ' \t\n' ' ' | sed 's/( /(/g; s/;/;\n/g' |
		grep -oE '(const )?((struct|enum) )?[a-z0-9_]+ \**gpushm_[a-z0-9_]+\([^()]*\);$' |
		grep -v '_fn(' >"$folder/there"
	awk '$1 == ".Ft" { $1 = ""; gsub(/^ "?|"$/, ""); result = $0 (/\*$/ ? "" : " ") }
		$1 == ".Fo" { call = $2 "("; n = 0 }
		$1 == ".Fa" && call { $1 = ""; gsub(/^ "?|"$/, ""); call = call (n++ ? ", " : "") $0 }
		$1 == ".Fc" { print result call ");"; call = "" }' "$2" >"$folder/told"
	same "prototype" "$2"
}
core='client/gpushm.h client/gpushm_array.h client/gpushm_async.h client/gpushm_query.h client/gpushm_events.h client/gpushm_metrics.h client/gpushm_cleanup.h client/gpushm_memory.h'
functions "$core" man/gpushm.3
# shellcheck disable=SC2086
grep -oh '\<gpushm_[a-z0-9_]*(' $core | tr -d '(' >"$folder/there"
grep -o 'Fn gpushm_[a-z0-9_]*' man/gpushm.3 | sed 's/Fn //' >"$folder/told"
same "function" man/gpushm.3
functions client/gpushm_load.h man/gpushm_load.3
functions client/gpushm_stream.h man/gpushm_stream.3
functions client/gpushm_handle.h man/gpushm_handle.3

# Environment variables that a program or the library reads; TERM and the like are not gpushm's own.
grep -rhoE 'getenv\("[A-Z_]+"\)' client daemon proto --include='*.c' |
	sed 's/.*"\(.*\)".*/\1/' | grep -vx 'TERM\|TMPDIR\|HOME\|VIRTUAL_ENV\|LISTEN_PID\|CUDA_MPS_PIPE_DIRECTORY' | sort -u |
	while read -r name; do
		grep -qwF "$name" man/gpushm.3 man/gpushm_load.3 man/gpushm.7 man/gpushmd.8 man/gpushmctl.1 man/gpushm-relay.8 ||
			echo "man: no page describes \$$name" >>"$folder/bad"
	done

# Whoever lists the types of events lists all of them.
"$build/gpushmctl" events --help >"$folder/events--help"
sed -n '/^WORDS(event,/,/)$/p' proto/words.h | grep -oE '"[a-z-]+"' | tr -d '"' >"$folder/types"
[ -s "$folder/types" ] || echo "proto/words.h: has no types of events" >>"$folder/bad"
while read -r type; do
	for list in "$folder/events--help" man/gpushmctl.1 client/gpushm_events.h client/python/gpushm/_events.py client/ctl/completion/*gpushmctl*; do
		grep -qw -- "$type" "$list" || echo "${list#"$folder"/}: does not name events of type $type"
	done >>"$folder/bad"
done <"$folder/types"

# The protocol's page names every request, code and field, because a client is written from it.
page=man/gpushm-protocol.7
sed -n 's/.*\<CODE_\([A-Z_]*\) = [1-9].*/\1/p' proto/gpushm.proto |
	while read -r code; do
		grep -qw "$code" $page || echo "$page: does not describe code $code" >>"$folder/bad"
	done
sed -n 's/^	*\(optional\|repeated\|oneof\)  *[A-Za-z0-9]* *\([a-z_0-9]*\) = .*/\2/p
	/oneof verb/,/}/s/^	*[A-Z][a-z]* \([a-z]*\) = .*/\1/p' proto/gpushm.proto | sort -u |
	while read -r field; do
		grep -qiw -- "$field" $page || echo "$page: does not describe $field" >>"$folder/bad"
	done

if [ -s "$folder/bad" ]; then
	cat "$folder/bad"
	bad=1
fi
exit $bad
