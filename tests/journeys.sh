#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Lists the .c files that journeys pass through, measured by callgrind:
#   1. OPEN on a host pool, from the call in the client to the pointer;
#   2. a client is killed while it holds a buffer, until the buffer's memory is free;
#   3. a new daemon takes over by an exec, and a client's next call reaches it: the daemon from
#      handover_adopt() to its end, and the client's reconnection;
#   4. a frame of a stream in a host pool, from its begin to its release by a reader;
#   5. gpushmctl load of a local file, all of it in the client;
#   6. a relay's GET of a range of a buffer, from the request to its last byte.
# gpushm-internals(7) has a table of the results. Needs valgrind, curl, and a build with -g.
#   tests/journeys.sh BUILD
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
# A producer and a reader of a stream, and a frame between them, behind the first one.
cat >"$work/frame.c" <<'C'
#include "client/gpushm_stream.h"
static int send_frame(struct gpushm_stream *producer, struct gpushm_stream *reader)
{
	struct gpushm_frame *frame;

	if (gpushm_frame_begin(producer, GPUSHM_ON_HOST, 0, &frame) < 0 ||
	    gpushm_frame_publish(frame, GPUSHM_ON_HOST, NULL, 0) < 0 ||
	    gpushm_frame_next(reader, GPUSHM_ON_HOST, 1000, &frame) < 0)
		return -1;
	return gpushm_frame_release(frame, GPUSHM_ON_HOST);
}
int measured(struct gpushm_stream *producer, struct gpushm_stream *reader)
{
	return send_frame(producer, reader);
}
int main(void)
{
	int64_t shape = 16;
	struct gpushm_array_spec array = { .struct_size = sizeof(array), .name = "a", .ndim = 1, .shape = &shape };
	struct gpushm_stream_spec spec = { .struct_size = sizeof(spec), .arrays = &array, .n_arrays = 1, .slots = 2 };
	struct gpushm *c = NULL;
	struct gpushm_stream *producer = NULL, *reader = NULL;

	return gpushm_dtype_parse("float32", &array.dtype) < 0 || gpushm_connect(NULL, &c) < 0 ||
	       gpushm_stream_create(c, "s", &spec, NULL, &producer) < 0 ||
	       gpushm_stream_open(c, "s", GPUSHM_EVERY, 1, 0, NULL, &reader) < 0 ||
	       send_frame(producer, reader) < 0 || measured(producer, reader) < 0;
}
C
cc -g -I. -Iclient -o "$work/frame" "$work/frame.c" -L"$build" -lgpushm
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

start_daemon --toggle-collect=handover_adopt
start_client valgrind -q --tool=callgrind --toggle-collect=hello_reconnect --callgrind-out-file="$work/client.profile" "$work/client"
open_once
kill -USR2 "$daemon"
wait_for grep -q 'gpushmd: notice: restarting as' "$work/log"
rm -f "$work"/daemon*
open_once
end_client
control -d
report "replaced daemon" "$work/client.profile" "$work"/daemon*
end_daemon

start_daemon --instr-atstart=no
valgrind -q --tool=callgrind --toggle-collect=measured --callgrind-out-file="$work/client.profile" "$work/frame"
report "a frame" "$work/client.profile"

python3 - "$work/m.safetensors" <<'P'
import json, struct, sys
header = json.dumps({"a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]}}).encode()
open(sys.argv[1], "wb").write(struct.pack("<Q", len(header)) + header + bytes(4000))
P
valgrind -q --tool=callgrind --callgrind-out-file="$work/client.profile" "$build/gpushmctl" load "$work/m.safetensors" t/m >/dev/null
report "gpushmctl load" "$work/client.profile"

# The body is sent after on_request() has returned; the first GET has looked the file up, which the second is spared.
printf '[relay]\nlisten=127.0.0.1:0\n[offer]\nname=*\n' >"$work/relay.conf"
valgrind -q --tool=callgrind --instr-atstart=no --callgrind-out-file="$work/relay.profile" \
	"$build/gpushm-relay" --config "$work/relay.conf" 2>"$work/relay.log" 8>&- 9>&- &
relay=$!
wait_for grep -q '127.0.0.1:[0-9]' "$work/relay.log"
url=http://$(grep -oE '127\.0\.0\.1:[0-9]+' "$work/relay.log" | head -n 1)/v1/buffers/t/m
wait_for curl -sf -o /dev/null "$url"
callgrind_control -i on "$relay" >/dev/null 2>&1
curl -sf -r 100-199 -o /dev/null "$url"
callgrind_control -i off "$relay" >/dev/null 2>&1
kill "$relay"
wait "$relay" || true
report "a relay's GET" "$work"/relay.profile*
