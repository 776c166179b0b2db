#!/bin/bash
# SPDX-License-Identifier: MIT
#
# make demo: starts a daemon with the default pools of this machine, puts a model and samples into it, and starts eight
# classify processes that attach to them at the same time and read a part of the held-out digits of tests/data each. It
# checks what it shows: the eight processes hold one allocation, the memory is given back, and the answers are those of one
# process alone, on the CPU. Only then the last line is "demo: ok". It stops and removes all that it started and made, also
# after a failure and after Ctrl-C.
#   client/examples/demo.sh BUILD
set -euo pipefail
build=$(realpath "$1")
data=$(realpath "$(dirname "$0")/../../tests/data")
workers=8
samples=1797
first=1000 # the first sample that the model was not trained on
held_out=$((samples - first))

folder=$(mktemp -d -t gpushm-demo-XXXXXX)
# The driver would keep the compiled kernel in ~/.nv. LC_ALL: the workers' times have points.
export GPUSHM_SOCKET=$folder/gpushmd.sock CUDA_CACHE_DISABLE=1 LC_ALL=C
ctl=$build/gpushmctl
daemon=
pids=() in=() out=()

clean_up() {
	local status=$?
	trap '' INT TERM HUP
	if [ ${#pids[@]} -gt 0 ]; then
		kill -KILL "${pids[@]}" 2>/dev/null || true
		wait "${pids[@]}" 2>/dev/null || true
	fi
	if [ -n "$daemon" ]; then
		kill "$daemon" 2>/dev/null || true
		timeout 20 tail --pid="$daemon" -f /dev/null || kill -KILL "$daemon"
		wait "$daemon" || status=1
	fi
	[ $status -eq 0 ] || cat "$folder/log" >&2 || true
	rm -rf "$folder"
	[ $status -ne 0 ] || echo "demo: ok"
	exit $status
}
trap clean_up EXIT
trap 'exit 1' INT TERM HUP

fail() {
	echo "demo: $*" >&2
	exit 1
}

# Ctrl-C is for this script, which then stops the daemon. cuInit takes seconds on a machine with many GPUs.
start_daemon() {
	setsid setpriv --pdeathsig TERM "$build/gpushmd" --no-keeper --config /dev/null --socket "$GPUSHM_SOCKET" \
		</dev/null >"$folder/log" 2>&1 &
	daemon=$!
	for ((i = 0; i < 600; i++)); do
		"$ctl" status >/dev/null 2>&1 && return
		kill -0 "$daemon" 2>/dev/null || fail "gpushmd has ended"
		sleep 0.1
	done
	fail "gpushmd does not get ready"
}

# ---- the buffers ----

# The model and the samples are sealed; the workers write the answers, which are 255 before. Options: as of gpushmctl put.
put_buffers() {
	"$ctl" put -q "$@" digits/model w1="$data/w1.npy" b1="$data/b1.npy" w2="$data/w2.npy" b2="$data/b2.npy"
	"$ctl" put -q "$@" digits/samples images="$data/digits-images.npy" labels="$data/digits-labels.npy"
	head -c $samples /dev/zero | tr '\0' '\377' | "$ctl" create -q "$@" --from=- --size=$samples digits/answers
}

# number NAME MEMBER: of what gpushmctl says about a buffer.
number() {
	"$ctl" stat --json=short "$1" | sed "s/.*\"$2\":\"\{0,1\}\([0-9]*\).*/\1/"
}

used_bytes() {
	"$ctl" metrics | sed -n "s/^gpushm_pool_used_bytes{pool=\"$pool\".* //p"
}

# While all are attached: each buffer is one allocation with eight holders, and the pool has no more bytes in use than the
# buffers have.
check_sharing() {
	local allocated=0 used shared

	"$ctl" ls
	for name in digits/model digits/samples digits/answers; do
		[ $(($(number $name readers) + $(number $name writers))) -eq $workers ] ||
			fail "$name: not all of the $workers workers hold it"
		allocated=$((allocated + $(number $name allocated_bytes)))
	done
	used=$(used_bytes)
	[ "$used" -eq $allocated ] || fail "pool $pool: $used bytes are in use, and the buffers have $allocated"
	shared=$(($(number digits/model bytes) + $(number digits/samples bytes)))
	echo "model and samples: $shared bytes shared, against $((workers * shared)) that $workers copies would have taken"
	echo "pool $pool has $used bytes in use for all three"
	echo
}

# The daemon frees memory on a thread of its own, so the number may come down after the reply.
give_back() {
	"$ctl" rm digits/model digits/samples digits/answers
	for ((i = 0; i < 200; i++)); do
		[ "$(used_bytes)" -ne 0 ] || return 0
		sleep 0.1
	done
	fail "pool $pool: $(used_bytes) bytes are still in use"
}

# ---- the workers ----

# A worker prints "ready US", waits for a line, prints "attached ID US", waits for a line, and prints "done RIGHT WHERE".
start_workers() {
	for ((i = 0; i < workers; i++)); do
		from[i]=$((first + held_out * i / workers))
		n[i]=$((first + held_out * (i + 1) / workers - from[i]))
		mkfifo "$folder/in.$i" "$folder/out.$i"
		"$build/examples/classify" "${from[i]}" "${n[i]}" <"$folder/in.$i" >"$folder/out.$i" &
		pids[i]=$!
		exec {fd}>"$folder/in.$i"
		in[i]=$fd
		exec {fd}<"$folder/out.$i"
		out[i]=$fd
	done
}

# hear WORKER SECONDS WORD: sets a and b to what follows the word.
hear() {
	local word

	read -r -t "$2" -u "${out[$1]}" word a b || fail "worker $1 has ended, or is not $3 in $2 s"
	[ "$word" = "$3" ] || fail "worker $1 says \"$word\" where it is to be $3"
}

# One after the other, when CUDA has started in all of them: so each time is that of an attach, not of a wait for the
# driver's locks.
attach() {
	local id

	for ((i = 0; i < workers; i++)); do
		hear $i 120 ready
		ready[i]=$a
	done
	id=$(number digits/model id)
	for ((i = 0; i < workers; i++)); do
		echo >&"${in[i]}"
		hear $i 20 attached
		[ "$a" = "$id" ] || fail "worker $i has attached to another model"
		attached[i]=$b
	done
}

compute() {
	right=0
	for ((i = 0; i < workers; i++)); do
		echo >&"${in[i]}"
	done
	echo "worker     samples      right  first open     attach  computed on"
	for ((i = 0; i < workers; i++)); do
		hear $i 60 "done"
		wait "${pids[i]}"
		unset "pids[i]"
		printf "%6d  %4d - %4d  %3d / %3d  %7.0f us  %6.0f us  %s\n" $i "${from[i]}" $((from[i] + n[i] - 1)) \
			"$a" "${n[i]}" "${ready[i]}" "${attached[i]}" "$b"
		right=$((right + a))
	done
	echo "   all               $right / $held_out"
	echo
}

# In memory of the host.
compute_alone() {
	local said

	put_buffers --pool=host
	said=$(printf '\n\n' | "$build/examples/classify" $first $held_out | grep '^done')
	[ "$said" = "done $right CPU" ] || fail "the workers have $right right, a process alone says: $said"
	"$ctl" get -q digits/answers "$folder/alone.npy"
	cmp "$folder/together.npy" "$folder/alone.npy"
	echo "all $held_out answers are those of one process alone on the CPU"
}

start_daemon
"$ctl" pools
put_buffers
pool=$("$ctl" stat --json=short digits/model | sed 's/.*"pool":"\([^"]*\)".*/\1/')
start_workers
attach
check_sharing
compute
"$ctl" get -q digits/answers "$folder/together.npy"
give_back
echo "pool $pool: all memory is given back"
compute_alone
