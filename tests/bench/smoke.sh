#!/bin/bash
# SPDX-License-Identifier: MIT
#
# The benchmark runs on host pools and over the fake driver, and its result has every row, with
# figures above zero. The comparison with other ways runs, too, for the ways of gpushm. No bound on
# time decides.
#   tests/bench/smoke.sh BUILD
set -u
build=$(cd "${1:-build}" && pwd) || exit 1
folder=$(mktemp -d) || exit 1
trap 'rm -rf "$folder"' EXIT

host=(ask count attach_host_2M attach_host_64M arrays_host_2M arrays_host_64M create_host create_host_mapped
	rate rate_cpu death_host start_host restart_host memory_total memory_files memory_each buffers_10 buffers_100 buffers_1000
	clients_10 clients_100)
gpu=(attach_vmm_2M attach_vmm_64M arrays_vmm_2M attach_mempool_4K attach_mempool_2M create_vmm
	create_vmm_mapped create_vmm_pending create_vmm_pending_mapped create_mempool death_vmm start_gpu
	restart_vmm mempool_buffers_10 mempool_buffers_100 mempool_buffers_1000)
checks=0
failures=0

# check ROWS...: each row is in the result, and complete.
check() {
	python3 - "$folder/bench.json" "$@" <<'EOP'
import json, math, sys
rows = {row["id"]: row for row in json.load(open(sys.argv[1]))["rows"]}
bad = 0
for name in sys.argv[2:]:
    row = rows.get(name)
    if row is None:
        print(f"row {name} is missing")
        bad = 1
        continue
    sides = [row["gpushm"]] + ([row["floor"]] if row["floor"] is not None else [])
    values = [side[key] for side in sides for key in ("n", "min", "median", "p99")] + [row["bound"]]
    if any(not math.isfinite(v) or v < 0 for v in values) or not math.isfinite(row["judged"]) or \
            any(not side["min"] <= side["median"] <= side["p99"] or side["p99"] <= 0 for side in sides):
        print(f"row {name} is not complete: {row}")
        bad = 1
sys.exit(bad)
EOP
}

# run NAME ROWS...
run() {
	name=$1
	shift
	checks=$((checks + 1))
	"$build/gpushm-bench" --quick --json "$folder/bench.json" >"$folder/said" 2>&1 && check "$@" && return
	failures=$((failures + 1))
	echo "$name: the benchmark does not run, or lacks a row:"
	cat "$folder/said"
}

run host "${host[@]}"
# A family alone: it needs none of the others.
checks=$((checks + 1))
if ! "$build/gpushm-bench" --quick --only start >"$folder/said" 2>&1; then
	failures=$((failures + 1))
	echo "the benchmark does not run for one family alone:"
	cat "$folder/said"
fi
checks=$((checks + 1))
if ! python3 tests/bench/peers.py "$build" --pool host --quick --only gpushm,gpushm-arrays --out "$folder" \
	>"$folder/said" 2>&1; then
	failures=$((failures + 1))
	echo "the comparison does not run:"
	cat "$folder/said"
fi
if [ -x "$build/tests/bench/streams" ]; then
	checks=$((checks + 1))
	if ! "$build/tests/bench/streams" --quick --host --json "$folder/streams.json" >"$folder/said" 2>&1 ||
		! python3 tests/bench/markdown.py "$folder" >"$folder/tables" || ! grep -q 'both sides poll' "$folder/tables"; then
		failures=$((failures + 1))
		echo "streams are not measured:"
		cat "$folder/said"
	fi
fi
if "$build/venv/bin/python" -c 'import matplotlib' 2>/dev/null; then
	checks=$((checks + 1))
	if ! "$build/venv/bin/python" -B tests/bench/plot.py "$folder" >"$folder/said" 2>&1 ||
		! [ -s "$folder/peers.svg" ] || { [ -e "$folder/streams.json" ] && ! [ -s "$folder/streams.svg" ]; }; then
		failures=$((failures + 1))
		echo "a plot is not drawn:"
		cat "$folder/said"
	fi
else
	echo "skipped: the plots: no matplotlib in $build/venv"
fi
if [ -e "$build/fakecuda/libcuda.so.1" ]; then
	export LD_LIBRARY_PATH=$build/fakecuda${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
	FAKECUDA_STATE=$folder/gpu FAKECUDA_MEMORY=8G run fake "${host[@]}" "${gpu[@]}"
	checks=$((checks + 1))
	if ! FAKECUDA_STATE=$folder/gpu2 "$build/tests/bench/models_load" "$folder" --quick --json "$folder/models.json" \
		>"$folder/said" 2>&1 || [ "$(wc -l <"$folder/models.json")" -lt 20 ]; then
		failures=$((failures + 1))
		echo "models are not measured:"
		cat "$folder/said"
	fi
fi
echo "$(((checks - failures) * 100 / checks))%: Checks: $checks, Failures: $failures, Errors: 0"
exit $((failures > 0))
