#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Memory of a host pool that is written for the first time: huge pages beside small ones.

    PYTHONPATH=build/python build/venv/bin/python -B tests/bench/fresh_memory.py [--sizes 16,64,256] [--rounds 15]

Publishes a copy of an array, and loads a file that is in the page cache, each into a new buffer, in turns by two
processes. One of them may have no huge pages (PR_SET_THP_DISABLE, prctl(2)), as on kernels before 6.1. Prints the
lines of a table: what, the medians in ms, and the median of the ratios in the same turn.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "python"))
PR_SET_THP_DISABLE = 41  # linux/prctl.h


def worker(small: bool, mib: int, file: str) -> None:
    """Does what it reads, and prints its seconds."""
    import numpy as np

    import gpushm

    ctypes.CDLL(None).prctl(PR_SET_THP_DISABLE, int(small), 0, 0, 0)
    source = np.ones(mib << 20, "u1")
    for line in sys.stdin:
        start = time.perf_counter()
        if line == "load\n":
            made = gpushm.load(file, "fresh", pool="host", transient=True)
        else:
            made = gpushm.create_many("fresh", {"a": source}, pool="host", transient=True)
            made.publish()
        seconds = time.perf_counter() - start
        made.close()
        print(seconds, flush=True)


def measure(mib: int, rounds: int, file: str) -> None:
    """Prints the rows of one size."""
    words = [sys.executable, __file__, "--sizes", str(mib), "--worker", file]
    pipe = subprocess.PIPE
    workers = [subprocess.Popen([*words, how], stdin=pipe, stdout=pipe, text=True) for how in ("small", "huge")]

    def ask(process: subprocess.Popen[str], what: str) -> float:
        assert process.stdin and process.stdout
        process.stdin.write(f"{what}\n")
        process.stdin.flush()
        return float(process.stdout.readline())

    for what in "publish", "load":
        turns = [[ask(w, what) for w in workers] for _ in range(rounds + 1)][1:]
        small, huge = (statistics.median(t) * 1e3 for t in zip(*turns, strict=True))
        ratio = statistics.median(a / b for a, b in turns)
        print(f"| {what} {mib} MiB | {small:.1f} | {huge:.1f} | {ratio:.2f} x |", flush=True)
    for process in workers:
        process.communicate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", default="16,64,256")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    if args.worker:
        return worker(args.worker[1] == "small", sizes[0], args.worker[0])
    import numpy as np
    from daemon import Daemon

    import gpushm

    daemon = Daemon(f"[pool host]\nkind=host\nsize={4 * max(sizes)}M\n")
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    with tempfile.TemporaryDirectory() as folder:
        for mib in sizes:
            file = f"{folder}/{mib}.safetensors"
            with gpushm.create_many("file", {"a": np.ones(mib << 20, "u1")}, pool="host") as made:
                made.publish()
            gpushm.save("file", file)
            gpushm.unlink("file")
            measure(mib, args.rounds, file)
    daemon.remove()
    return None


if __name__ == "__main__":
    main()
