#!/bin/bash
# SPDX-License-Identifier: MIT
#
# One benchmark, and its plots. bench.mk calls it, with OUT, the folder of the figures, and the options of the programs in
# the environment: tests/bench/run.sh host|gpu|streams|models|nodes|plots BUILD
set -u
build=$2
bad=0
# Options are words.
read -ra bench <<<"${BENCH-}"
read -ra streams <<<"${STREAMS-}"
read -ra nodes <<<"${NODES-}"
export BUILD=$build PATH=$PATH:$build/nginx/usr/sbin

plots() {
	local python=$build/venv/bin/python
	[ -x "$python" ] || python=python3
	"$python" -B tests/bench/plot.py "$OUT" || bad=1
}
fleet() { python3 -B tests/bench/nodes/fleet.py "$@" || bad=1; }

case $1 in
host) "$build/gpushm-bench" --json "$OUT/bench.json" "${bench[@]}" || bad=1 ;;
gpu)
	"$build/gpushm-bench" --json "$OUT/bench.json" "${bench[@]}" || bad=1
	python3 tests/bench/peers.py "$build" --out "$OUT" || bad=1
	;;
streams) # Without MPS and, where its daemon is, with it.
	"$build/tests/bench/streams" --json "$OUT/streams.json" "${streams[@]}" || bad=1
	if command -v nvidia-cuda-mps-control >/dev/null && [ -z "${STREAMS-}" ]; then
		"$build/tests/bench/streams" --mps --json "$OUT/streams-mps.json" || bad=1
	fi
	python3 tests/bench/markdown.py "$OUT" >"$OUT/streams.md" || bad=1
	;;
models) # A file, loaded, saved and verified; then an attach of a model of transformers, and what many arrays cost the daemon.
	file=$MODELS_FOLDER/gpushm-bench.safetensors
	json=$OUT/models.json
	"$build/tests/bench/models_load" "$MODELS_FOLDER" --gib "$MODELS_GIB" --json "$json" || bad=1
	"$build/tests/bench/models_ring" "$file" --json "$OUT/models-ring.json" || bad=1
	python3 tests/bench/models_peers.py "$file" --json "$json" || bad=1
	rm -f "$file"
	export PYTHONPATH=$build/python:${PYTHONPATH-}
	python3 -B tests/bench/models_attach.py --json "$json" || bad=1
	python3 -B tests/bench/models_memory.py --json "$json" || bad=1
	;;
nodes) # Beside iperf3 and curl; then a fleet by simulation, with rates that were measured and those of a network of 25 Gb/s.
	python3 -B tests/bench/nodes/bench.py --out "$OUT" "${nodes[@]}" || bad=1
	measured=()
	[ ! -e "$OUT/nodes.json" ] || measured=(--measured "$OUT/nodes.json")
	fleet --sizes 100 "${measured[@]}"
	fleet --sizes 100,1000 --rules all
	fleet --sizes 8,100,1000,10000 --out "$OUT"
	;;
esac
plots
exit $bad
