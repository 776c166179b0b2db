#!/bin/sh
# SPDX-License-Identifier: MIT
#
# Which folder may include which: each line of the table names a folder and all folders below it that
# it may include; every folder may include itself. Inside a folder, and between folders, there are no
# cycles: a file, its header and its _internal header count as one. A folder without a line is an error.
set -u
cd "$(dirname "$0")/../.." || exit 1

table='
proto/base
proto              proto/base
daemon/util        proto/base proto
daemon/keeper      proto/base daemon/util
daemon/config      proto/base proto daemon/util
daemon/pool        proto/base proto daemon/util daemon/config
daemon/catalog     proto/base proto daemon/util daemon/config daemon/pool
daemon/state       proto/base proto daemon/util daemon/config daemon/pool daemon/catalog
daemon/ipc         proto/base proto daemon/util daemon/config daemon/pool daemon/catalog daemon/state
daemon             proto/base proto daemon/util daemon/keeper daemon/config daemon/pool daemon/catalog daemon/state daemon/ipc
client
client/lib/base    proto/base proto client
client/lib/map     proto/base proto client client/lib/base
client/lib/link    proto/base proto client client/lib/base client/lib/map
client/lib/buffer  proto/base proto client client/lib/base client/lib/map client/lib/link
client/lib/array   proto/base proto client client/lib/base client/lib/map client/lib/link client/lib/buffer
client/lib/stream  proto/base proto client client/lib/base client/lib/map client/lib/link client/lib/buffer client/lib/array
client/models/web  proto/base proto client
client/models/files proto/base proto client client/models client/models/web client/models/nixl
client/models/copy proto/base proto client client/models client/models/web client/models/files client/models/nixl
client/models/nixl proto/base proto client client/models client/models/web client/models/files
client/models      proto/base proto client client/models/web client/models/files client/models/copy client/models/nixl
client/common      proto/base proto client
client/relay/serve proto/base proto client client/common client/models client/models/web client/models/files client/models/copy client/models/nixl client/relay client/relay/offer client/relay/fleet
client/relay/offer proto/base proto client client/common client/models client/models/web client/models/files client/models/copy client/relay client/relay/serve client/relay/fleet
client/relay/fleet proto/base proto client client/common client/models client/models/web client/relay client/relay/offer client/relay/serve
client/relay       proto/base proto client client/common client/models client/relay/serve client/relay/offer client/relay/fleet
client/ctl         proto/base proto client client/lib/base/spec.h client/common client/models/nixl client/ctl/model client/ctl/stream
client/ctl/model   proto/base proto client client/ctl client/common
client/ctl/stream  proto/base proto client client/ctl client/lib/base/spec.h client/common
client/ctl/top     proto/base proto client client/ctl
client/ctl/exporter proto/base proto client client/common client/ctl
client/python/core proto/base proto client
client/examples    client proto/base proto
client/examples/demo client client/examples client/common proto/base proto
'

git ls-files --cached --others --exclude-standard -- 'proto/*.[ch]' 'daemon/*.[ch]' 'client/*.[ch]' |
	while read -r file; do
		[ -f "$file" ] && grep -Hn '^#include "' "$file"
		echo "$file:0:"
	done | awk -F: -v table="$table" '
function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
function noun_of(path) { sub(/(_internal)?\.[ch]$/, "", path); return path }
function complain(text) { print $1 ":" $2 ": " text; bad = 1 }
# Depth first: a noun that is met again while it is still open closes a cycle.
function visit(noun, path,    words, n, i) {
	if (done_[noun])
		return
	if (open_[noun]) {
		print "include cycle: " path " > " noun
		bad = 1
		return
	}
	open_[noun] = 1
	n = split(edges[noun], words, " ")
	for (i = 1; i <= n; i++)
		visit(words[i], path == "" ? noun : path " > " noun)
	done_[noun] = 1
}
BEGIN {
	n = split(table, lines, "\n")
	for (i = 1; i <= n; i++) {
		m = split(lines[i], words, " ")
		for (j = 1; j <= m; j++)
			may[words[1], words[j]] = 1
	}
}
{
	folder = folder_of($1)
	if ($2 == 0) {
		if (!((folder, folder) in may))
			complain("give " folder " a line in the table of tests/lint/layers.sh")
		next
	}
	split($0, quoted, "\"")
	target = quoted[2]
	if (target ~ /\.pb-c\.h$/) # generated
		next
	if (target !~ /\//)
		complain("\"" target "\": includes are written from the root of the repository")
	else if (!((folder, folder_of(target)) in may) && !((folder, target) in may))
		complain(folder " must not include " target)
	if (noun_of(target) != noun_of($1))
		edges[noun_of($1)] = edges[noun_of($1)] " " noun_of(target)
}
END {
	for (noun in edges)
		visit(noun, "")
	exit bad
}'
