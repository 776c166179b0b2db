#!/bin/sh
# SPDX-License-Identifier: MIT
#
# An include points down the tower or sideways, never up. The towers are the tables below: a floor a
# line, the highest first; a word is a file's name without .c or .h, and a name_part stands on the
# floor of its name. A file that no table knows is an error: whoever adds one says where it stands.
set -u
cd "$(dirname "$0")/../.." || exit 1

git ls-files --cached --others --exclude-standard -- 'proto/*.[ch]' 'daemon/*.[ch]' 'client/*.[ch]' |
	while read -r file; do
		[ -f "$file" ] && grep -Hn '^#include "' "$file"
		echo "$file:0:"
	done | awk -F: '
# The floor of a file in its tower, by the longest known name that it starts with.
function floor_of(tower, name,    n) {
	for (n = name; n != ""; ) {
		if ((tower, n) in floors)
			return floors[tower, n]
		if (!match(n, /_[^_]*$/))
			break
		n = substr(n, 1, RSTART - 1)
	}
	return 0
}
function tower_of(path) {
	if (path ~ /^proto\//) return "proto"
	if (path ~ /^daemon\//) return "daemon"
	if (path ~ /^client\/(ctl|examples)\//) return "program"
	if (path ~ /^client\/python\//) return "python"
	if (path ~ /^client\//) return "client"
	return ""
}
function name_of(path,    tower) {
	tower = tower_of(path)
	sub(/\.[ch]$/, "", path)
	# Pools stand below the daemon: one floor for all of the folder, likewise the mappings.
	if (path ~ /^daemon\/pool\//) return "pool"
	if (path ~ /^client\/map\//) return "map"
	sub(/^.*\//, "", path)
	return path
}
function tower(name, text,    lines, words, i, j, n, m) {
	n = split(text, lines, ">")
	for (i = 1; i <= n; i++) {
		m = split(lines[i], words, " ")
		for (j = 1; j <= m; j++)
			floors[name, words[j]] = n - i + 1
	}
}
function complain(text) {
	print $1 ":" $2 ": " text
	bad = 1
}
BEGIN {
	tower("daemon", "main > broker > listener endpoint estate notify > peer > request verb > answer > restore audit > pools > session >" \
		"waiter reaper restart > catalog > archive board > replay > journal store manifest > naming > buffer > lease > process > account pidfd > pool > config > " \
		"complaints ini similar > throttle > log > escape > index clock grow slots")
	tower("python", "module > array_type buffer_type create open names look watch defer > record > view bytes dlpack cai copy > " \
		"array buffer > order options connection > shape dtype stream deadline args > error > object")
	tower("client", "watch > create open close wait find describe publish list pools status restart view reshape copy contents " \
		"dlpack getters > array options stat spec transfer > dtype walk > buffer > attach image > " \
		"connect reconnect connection decode > notice > map > state defer endpoint > error > gpushm dlpack_abi clock")
}
{
	file = $1
	from = tower_of(file)
	if ((from == "daemon" || from == "client" || from == "python") && !floor_of(from, name_of(file))) {
		if ($2 == 0)
			complain("which floor is it on? Add it to the table in tests/lint/layers.sh")
		next
	}
	if ($2 == 0)
		next
	split($0, quoted, "\"")
	target = quoted[2]
	# Generated, and a header beside the file in proto/.
	if (target == "gpushm.pb-c.h" || target == "journal.pb-c.h")
		next
	if (target !~ /\// && from == "proto")
		target = "proto/" target
	to = tower_of(target)
	if (to == "")
		complain("\"" target "\": includes are written from the root of the repository")
	else if (from == "proto" && to != "proto")
		complain("proto includes proto only, not " target)
	# DLPack itself says what its structs are.
	else if (to != "proto" && from == "python" && target != "client/gpushm.h" && target != "client/dlpack_abi.h" && to != "python")
		complain("the Python package uses client/gpushm.h, client/dlpack_abi.h and proto only, not " target)
	else if (to != "proto" && from == "program" && target != "client/gpushm.h" && to != "program")
		complain("programs use client/gpushm.h and proto only, not " target)
	else if (to != "proto" && from == "daemon" && to != "daemon")
		complain("the daemon includes nothing of the client: " target)
	else if (to != "proto" && from == "client" && to != "client")
		complain("the library includes nothing of the daemon and of programs: " target)
	else if (from == to && (from == "daemon" || from == "client" || from == "python")) {
		if (!floor_of(to, name_of(target)))
			complain(target " is on no floor of the table in tests/lint/layers.sh")
		else if (floor_of(to, name_of(target)) > floor_of(from, name_of(file)))
			complain("includes " target ", which stands above it")
	}
}
END { exit bad }'
