#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Lists the .c files that three journeys pass through, measured by callgrind:
#   1. OPEN on a host pool, from the call in the client to the pointer;
#   2. a client is killed while it holds a buffer, until the buffer's memory is free;
#   3. a new daemon takes over by an exec, and a client's next call reaches it: the daemon from
#      handover_adopt() to its end, and the client's reconnection.
# gpushm-internals(7) has a table of the results. Needs valgrind, and a build with -g.
#   tests/journeys.sh BUILD
# ADOPT and RECONNECT name the two functions of the third journey in another version.
set -eu
build=$(realpath "$1")
work=$(mktemp -d)
export GPUSHM_SOCKET=$work/socket LD_LIBRARY_PATH=$build
# shellcheck disable=SC2046 # pids are words
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$work"' EXIT

# A client that connects, and opens t/x for each line of its input; it answers each time.
cat >"$work/client.c" <<'C'
#include "client/gpushm.h"
#include <stdio.h>
int main(void)
{
	struct gpushm *c = NULL;
	struct gpushm_buffer *b = NULL;

	if (gpushm_connect(NULL, &c) < 0)
		return 1;
	puts("connected");
	fflush(stdout);
	while (getchar() == '\n') {
		if (gpushm_open(c, "t/x", GPUSHM_READ, 0, NULL, &b) < 0)
			return 2;
		puts("opened");
		fflush(stdout);
	}
	return 0;
}
C
cc -g -I. -o "$work/client" "$work/client.c" -L"$build" -lgpushm
mkfifo "$work/in" "$work/out"

wait_for() {
	for _ in $(seq 300); do
		if "$@" >/dev/null 2>&1; then return; fi
		sleep 0.1
	done
	echo "gave up waiting for: $*" >&2
	exit 1
}
start_client() { # COMMAND...
	"$@" <"$work/in" >"$work/out" 8>&- 9>&- &
	client=$!
	exec 8>"$work/in" 9<"$work/out"
	read -r answer <&9
	[ "$answer" = connected ]
}
open_once() {
	echo >&8
	read -r answer <&9
	[ "$answer" = opened ]
}
end_client() {
	exec 8>&-
	wait "$client" || true
}
start_daemon() { # CALLGRIND-OPTION...
	valgrind -q --tool=callgrind --trace-children=yes --callgrind-out-file="$work/daemon" "$@" \
		"$build/gpushmd" --no-keeper --socket "$GPUSHM_SOCKET" --config "$work/conf" 2>"$work/log" 8>&- 9>&- &
	daemon=$!
	wait_for "$build/gpushmctl" ls
	before=$(memfds)
	"$build/gpushmctl" create -q --size 4096 --sealed t/x
}
end_daemon() {
	kill "$daemon"
	wait "$daemon" || true
	rm -f "$work"/daemon*
}
control() { callgrind_control "$@" "$daemon" >/dev/null 2>&1; }
# Each host buffer of the daemon is a memfd.
memfds() { readlink /proc/"$daemon"/fd/* 2>/dev/null | grep -c memfd: || true; }
# shellcheck disable=SC2317 # wait_for calls it
is_freed() { [ "$(memfds)" -le "$before" ]; }
report() { # TITLE PROFILE...
	local files
	files=$(grep -ohE '\) .*\b(client|daemon|proto)/.*\.c$' "${@:2}" | sed -E 's#^.*\b((client|daemon|proto)/)#\1#' | sort -u)
	echo "$1: $(wc -l <<<"$files") .c files"
	awk '{ print "    " $0 }' <<<"$files"
}
printf '[pool host]\nkind=host\nsize=64M\n' >"$work/conf"

# peer.c reads a request and sends its reply in on_event().
start_daemon --instr-atstart=no --toggle-collect=on_event
start_client valgrind -q --tool=callgrind --toggle-collect=gpushm_open --callgrind-out-file="$work/client.profile" "$work/client"
open_once
end_client
start_client "$work/client"
control -i on
open_once
control -i off
control -d
report "OPEN" "$work/client.profile" "$work"/daemon.*
end_client
end_daemon

start_daemon --instr-atstart=no
start_client "$work/client"
open_once
"$build/gpushmctl" rm -q t/x
control -i on
kill -9 "$client"
wait_for is_freed
control -i off
control -d
report "killed client" "$work"/daemon.*
end_daemon

start_daemon --toggle-collect="${ADOPT:-handover_adopt}"
start_client valgrind -q --tool=callgrind --toggle-collect="${RECONNECT:-hello_reconnect}" --callgrind-out-file="$work/client.profile" "$work/client"
open_once
kill -USR2 "$daemon"
wait_for grep -q 'gpushmd: notice: restarting as' "$work/log"
rm -f "$work"/daemon*
open_once
end_client
control -d
report "replaced daemon" "$work/client.profile" "$work"/daemon*
