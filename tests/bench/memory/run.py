# SPDX-License-Identifier: MIT
"""What it takes to let go of memory and to come back.

    make bench-memory MEMORY='--only cache --requests 10000', or
    BUILD=build PYTHONPATH=build/python python3 tests/bench/memory/run.py

It starts daemons of its own from $BUILD. Without a GPU it takes host pools and small models; with GPUSHM_GPU=1 vmm and
pinned ones, and rows that need a GPU run, too. Prints a table, and writes memory.json into $OUT.
"""
import argparse
import importlib
import json
import os
import platform
from pathlib import Path

import common

ROWS = ["cache", "evictions", "workers", "asleep"]
GPU_ROWS = ["alone", "graphs", "park"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="of " + ",".join(ROWS + GPU_ROWS))
    parser.add_argument("--kib", type=int, default=512 << 10 if common.GPU else 64, help="a model of cache and evictions")
    parser.add_argument("--requests", type=int, default=100000, help="of cache")
    parser.add_argument("--askers", type=int, default=4, help="processes of cache")
    parser.add_argument("--seconds", type=float, default=4, help="of evictions")
    parser.add_argument("--mib", type=int, default=3 << 10 if common.GPU else 8, help="a model of workers")
    parser.add_argument("--asked", type=int, default=200, help="requests of workers")
    parser.add_argument("--rate", type=float, default=20, help="of these a second")
    parser.add_argument("--gib", type=float, default=16 if common.GPU else 0.0625, help="a model of the other rows")
    parser.add_argument("--rounds", type=int, default=1000 if common.GPU else 20, help="of graphs, asleep and park")
    parser.add_argument("--most", type=float, default=float("inf"), help="seconds of the requests of cache and the rounds of park")
    parser.add_argument("--parked", type=int, default=4, help="workers that are parked beside each other")
    parser.add_argument("--peers", type=int, default=2, help="processes of each other way of asleep")
    parser.add_argument("--beside", default="cuda.bindings,torch,torch_memory_saver,vllm", help="what the other ways are made of")
    args = parser.parse_args()
    print("| what | beside | gpushm | wanted |\n|--|--|--|--|", flush=True)
    for name in args.only.split(",") if args.only else ROWS + (GPU_ROWS if common.GPU else []):
        importlib.import_module(name).run(args)
    setup = {"gpu": common.GPU, "cores": os.cpu_count(), "kernel": platform.release(), "args": vars(args)}
    Path(os.environ.get("OUT", common.BUILD), "memory.json").write_text(json.dumps({"setup": setup, "rows": common.results}))


if __name__ == "__main__":
    main()
