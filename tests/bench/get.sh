#!/bin/bash
# SPDX-License-Identifier: MIT
#
# gpushmctl get beside dd: the same bytes to a file in a tmpfs, in turns, each by a new process. The
# best of the rounds counts, because other programs only make a copy slower. The seconds of a GPU's
# pool have the start of the driver in them; get of one byte says how long that takes.
#   tests/bench/get.sh [BUILD] [ROUNDS] [BYTES]
set -euo pipefail
build=$(cd "${1:-build}" && pwd)
rounds=${2:-7}
bytes=${3:-$((1 << 30))}
folder=$(mktemp -d /dev/shm/gpushm-get-XXXXXX)
export GPUSHM_SOCKET=$folder/socket PATH=$build:$PATH TIMEFORMAT='%R %U %S'
gpushmd --no-keeper --socket "$GPUSHM_SOCKET" 2> "$folder/log" &
daemon=$!
trap 'kill $daemon; wait $daemon; rm -rf "$folder"' EXIT
until gpushmctl pools > /dev/null 2>&1; do sleep 0.1; done

# Runs a command that writes $folder/out, and prints its seconds and its CPU seconds.
once() {
	rm -f "$folder/out"
	{ time "$@" > /dev/null 2>&1; } 2>&1 | awk '{ print $1, $2 + $3 }'
}

# The least seconds and CPU seconds of the lines on standard input.
best() {
	awk 'NR == 1 || $1 < wall { wall = $1 } NR == 1 || $2 < cpu { cpu = $2 } END { print wall, cpu }'
}

head -c "$bytes" /dev/zero > "$folder/source"
head -c 1 /dev/zero > "$folder/byte"
printf '%-14s %-10s %8s %8s %8s\n' POOL COMMAND SECONDS CPU 'TO DD'
for pool in $(gpushmctl pools | awk 'NR > 1 { print $1 }'); do
	gpushmctl create -q --pool="$pool" --from="$folder/source" get/data
	gpushmctl create -q --pool="$pool" --from="$folder/byte" get/byte
	: > "$folder/dd"
	: > "$folder/raw"
	: > "$folder/npy"
	: > "$folder/one"
	for ((i = 0; i < rounds; i++)); do
		once dd if="$folder/source" of="$folder/out" bs=8M >> "$folder/dd"
		once gpushmctl get -q --raw get/data "$folder/out" >> "$folder/raw"
		once gpushmctl get -q get/data "$folder/out" >> "$folder/npy"
		once gpushmctl get -q --raw get/byte "$folder/out" >> "$folder/one"
	done
	read -r dd cpu < <(best < "$folder/dd")
	printf '%-14s %-10s %8s %8s %8s\n' "$pool" dd "$dd" "$cpu" 1.00
	for command in raw npy one; do
		read -r wall cpu < <(best < "$folder/$command")
		printf '%-14s %-10s %8s %8s %8s\n' "$pool" "get $command" "$wall" "$cpu" \
			"$(awk "BEGIN { printf \"%.2f\", $wall / $dd }")"
	done
	gpushmctl rm get/
done
