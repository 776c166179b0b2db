# SPDX-License-Identifier: MIT
"""gpushm beside the ways in use today to hand GPU memory to another process: the same arrays, in one run.

    python3 tests/bench/peers.py BUILD [--out FOLDER] [--pool POOL] [--quick]

Each way runs in processes of its own (peer.py) and has a minute and a half. If one fails, the table has its error and
the others go on. Prints a table; writes peers.json to FOLDER, and plot.py draws it.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

import library

MIB, GIB = 1 << 20, 1 << 30
TIMEOUT = 90  # seconds for a way
MEMPOOL_MAX = 4 * GIB  # of one buffer: a larger one would kill its importer
CASES = [(1, 2 * MIB), (1, 64 * MIB), (1, GIB), (300, 16 * GIB), (3435, 16 * GIB), (1, 16 * GIB)]
QUICK = [(1, 2 * MIB), (300, 64 * MIB)]

# The name of each way in the table, and its environment variables.
WAYS = {
    "gpushm": ("gpushm", {}),
    "gpushm-again": ("gpushm, unmaps wait (10 at most)", {"GPUSHM_MAX_PENDING_UNMAPS_COUNT": "10"}),
    "gpushm-mempool": ("gpushm, from a mempool", {}),
    "gpushm-neighbour": ("gpushm, from a mempool, beside another", {}),
    "gpushm-arrays": ("gpushm, and an object for each array", {}),
    "gpushm-python": ("gpushm, its Python package", {}),
    "cuda.core": ("cuda.core Buffer", {}),
    "numba": ("Numba IpcArrayHandle", {}),
    "torch": ("PyTorch reductions", {"PYTORCH_CUDA_ALLOC_CONF": ""}),
    "torch-expandable": ("PyTorch, expandable segments", {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "cupy": ("CuPy, legacy handles", {}),
}


def size_text(n):
    return f"{n // GIB} GiB" if n % GIB == 0 else f"{n // MIB} MiB"


def case_text(count, total):
    return f"{count} array{'s' * (count > 1)}, {size_text(total)}"


def last_line(text):
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return lines[-1][:300] if lines else "no word"


def run_way(way, args, cases):
    """Returns the results of a way, one for each case; a missing result has the error."""
    command = [sys.executable, os.path.join(os.path.dirname(os.path.abspath(__file__)), "peer.py"), way, *args,
               *(f"{count}:{total}" for count, total in cases)]
    try:
        done = subprocess.run(command, env={**os.environ, **WAYS[way][1]}, capture_output=True, text=True,
                              timeout=TIMEOUT)
        out, error = done.stdout, f"ended with {done.returncode}: {last_line(done.stderr)}"
    except subprocess.TimeoutExpired as expired:
        out, error = (expired.stdout or b"").decode(), f"not done after {TIMEOUT} s"
    results = [json.loads(line) for line in out.splitlines() if line.startswith("{")]
    have = {(r["count"], r["bytes"]) for r in results}
    return results + [{"way": way, "count": count, "bytes": total, "error": error}
                      for count, total in cases if (count, total) not in have]


def time_text(us):
    return f"{us:.1f} us" if us < 1000 else f"{us / 1000:.2f} ms" if us < 1e6 else f"{us / 1e6:.2f} s"


def print_case(results, count, total):
    rows = [r for r in results if (r["count"], r["bytes"]) == (count, total)]
    ours = next((r["attach"]["median"] for r in rows if r["way"] == "gpushm" and "attach" in r), None)
    print(f"\n{case_text(count, total)}\n  {'':40}{'rounds':>8}{'first':>12}{'median':>12}{'p99':>12}"
          f"{'handed over':>14}{'of gpushm':>12}")
    for r in rows:
        label = WAYS[r["way"]][0]
        if "error" in r:
            print(f"  {label:40}  FAILED: {r['error']}")
            continue
        ratio = f"{r['attach']['median'] / ours:.1f} x" if ours else ""
        print(f"  {label:40}{r['attach']['n']:>8}{time_text(r['first']):>12}{time_text(r['attach']['median']):>12}"
              f"{time_text(r['attach']['p99']):>12}{time_text(r['handed_over']['median']):>14}{ratio:>12}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("--out")
    parser.add_argument("--pool", default="gpu0", help="of gpushm's buffers")
    parser.add_argument("--only", help="ways, with commas between them")
    parser.add_argument("--quick", action="store_true", help="only shows that it runs; the figures mean nothing")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    cases = QUICK if options.quick else CASES
    ways = options.only.split(",") if options.only else list(WAYS)
    results = []
    with tempfile.TemporaryDirectory() as folder:
        daemon, socket = library.start_daemon(build, folder)
        try:
            for way in ways:
                mempool = way in ("gpushm-mempool", "gpushm-neighbour")
                pool = f"{options.pool}-mempool" if mempool else options.pool
                results += run_way(way, [build, socket, pool],
                                   [case for case in cases if not mempool or case[1] <= MEMPOOL_MAX])
        finally:
            daemon.terminate()
            daemon.wait()
    print("Attaching to the memory of another process: from the bytes in the pipe to arrays that can be used.\n"
          "Handed over: from sending the bytes to the confirmation that the arrays can be used.\n"
          "Medians; first is a case's first round.")
    for count, total in cases:
        print_case(results, count, total)
    if options.out:
        os.makedirs(options.out, exist_ok=True)
        with open(os.path.join(options.out, "peers.json"), "w") as f:
            json.dump(results, f, indent=1)
    return 1 if any("error" in r for r in results if r["way"].startswith("gpushm")) else 0


if __name__ == "__main__":
    sys.exit(main())
