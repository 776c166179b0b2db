#!/bin/sh
# SPDX-License-Identifier: MIT
#
# The walls. A product is a folder and all folders below it; it may include proto/, its own folders, and the doors that its
# line of "products" names: public headers, or the folder of what programs share. Inside a product each line of "floors" names
# a folder and the other folders of the product that it may include. There are no cycles between files: a file, its header
# and its _internal header count as one. A folder without a line is an error.
#   tests/lint/layers.sh [ROOT]    another tree than this one; tests/lint/walls.sh plants faults in one
set -u
cd "${1:-$(dirname "$0")/../..}" || exit 1

# "public" stands for the headers that are installed.
products='
proto
daemon
client/lib       public client/gpushm_private.h
client/models    public client/gpushm_private.h client/gpushm_load_private.h
client/common    public
client/relay     public client/gpushm_private.h client/gpushm_load_private.h client/common
client/ctl       public client/gpushm_load_private.h client/common
client/python    public client/gpushm_private.h
client/examples  public
client           public
'
public='gpushm.h gpushm_array.h gpushm_async.h gpushm_query.h gpushm_events.h gpushm_handle.h gpushm_metrics.h gpushm_cleanup.h gpushm_memory.h gpushm_stream.h gpushm_load.h'

floors='
proto/base
proto/systemd       proto/base
proto               proto/base
daemon/util
daemon/keeper       daemon/util
daemon/config       daemon/util
daemon/pool         daemon/util daemon/config
daemon/catalog      daemon/util daemon/config daemon/pool
daemon/state        daemon/util daemon/config daemon/pool daemon/catalog
daemon/ipc          daemon/util daemon/config daemon/pool daemon/catalog daemon/state
daemon              daemon/util daemon/keeper daemon/config daemon/pool daemon/catalog daemon/state daemon/ipc
client
client/lib/base
client/lib/map      client/lib/base
client/lib/link     client/lib/base client/lib/map
client/lib/buffer   client/lib/base client/lib/map client/lib/link
client/lib/array    client/lib/base client/lib/map client/lib/buffer
client/lib/stream   client/lib/base client/lib/map client/lib/link client/lib/buffer client/lib/array
client/models       client/models/web client/models/nixl client/models/files client/models/copy
client/models/web   client/models/locks.h client/models/fail.h
client/models/nixl  client/models client/models/web client/models/files
client/models/files client/models client/models/web client/models/nixl
client/models/copy  client/models client/models/web client/models/nixl client/models/files
client/common
client/ctl          client/ctl/model client/ctl/stream
client/ctl/model    client/ctl
client/ctl/stream   client/ctl
client/ctl/top      client/ctl
client/ctl/exporter client/ctl/snapshot.h
client/relay        client/relay/serve client/relay/offer client/relay/fleet
client/relay/serve  client/relay client/relay/offer client/relay/fleet
client/relay/offer  client/relay client/relay/serve
client/relay/fleet  client/relay client/relay/offer client/relay/serve
client/python/core
client/examples
'

find proto daemon client -name '*.[ch]' | sort | while read -r file; do
	grep -Hn '^#include "' "$file"
	echo "$file:0:"
done | awk -F: -v products="$products" -v public="$public" -v floors="$floors" '
function folder_of(path) { sub(/\/[^\/]*$/, "", path); return path }
function noun_of(path) { sub(/(_internal)?\.[ch]$/, "", path); return path }
function complain(text) { print $1 ":" $2 ": " text; bad = 1 }
function product_of(folder) {
	for (; !(folder in is_product) && folder ~ /\//; folder = folder_of(folder))
		;
	return folder
}
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
function check(folder, target,    other, from) {
	other = folder_of(target)
	from = product_of(folder)
	if (product_of(other) == from && from != "client") {
		if (folder != other && !((folder, other) in may) && !((folder, target) in may))
			complain(folder " must not include " target)
	} else if (product_of(other) == "proto") {
		return
	} else if (!((from, other) in door) && !((from, target) in door))
		complain(target " is no door to the product " from)
}
BEGIN {
	n = split(products, lines, "\n")
	for (i = 1; i <= n; i++) {
		m = split(lines[i], words, " ")
		is_product[words[1]] = 1
		for (j = 2; j <= m; j++)
			door[words[1], words[j]] = 1
		if (words[2] != "public")
			continue
		m = split(public, headers, " ")
		for (j = 1; j <= m; j++)
			door[words[1], "client/" headers[j]] = 1
	}
	n = split(floors, lines, "\n")
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
			complain("give " folder " a line in the tables of tests/lint/layers.sh")
		next
	}
	split($0, quoted, "\"")
	target = quoted[2]
	if (target ~ /\.pb-c\.h$|^(gpushm_records|records_table|python_tables)\.h$/) # generated
		next
	if (target !~ /\//)
		complain("\"" target "\": includes are written from the root of the repository")
	else
		check(folder, target)
	if (noun_of(target) != noun_of($1))
		edges[noun_of($1)] = edges[noun_of($1)] " " noun_of(target)
}
END {
	for (noun in edges)
		visit(noun, "")
	exit bad
}'
