# shellcheck shell=bash disable=SC2154
# SPDX-License-Identifier: MIT
#
# Clients that go on while daemons change: "side" of side.c with probe, hold, feed, drain or suspend. A script that sources
# this has side VERSION COMMAND NAME, soon COMMAND..., and a folder $clients.
declare -A client_pid client_in

# begin ID VERSION COMMAND NAME: returns when it works.
begin() {
	local in
	rm -f "$clients/$1" "$clients/$1.out"
	mkfifo "$clients/$1" || return 1
	side "${@:2}" <"$clients/$1" >"$clients/$1.out" 2>&1 &
	client_pid[$1]=$!
	exec {in}>"$clients/$1" && client_in[$1]=$in
	soon grep -qs works "$clients/$1.out" && return
	cat "$clients/$1.out"
	return 1
}

# It stops what it does, and says how much that was.
finish() {
	local status in=${client_in[$1]}
	echo >&"$in"
	wait "${client_pid[$1]}"
	status=$?
	exec {in}>&-
	cat "$clients/$1.out"
	return $status
}

# What finish has shown.
said() { tail -n 1 "$clients/$1.out"; }
