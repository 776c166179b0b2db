# SPDX-License-Identifier: MIT
"""How much slower an attach is in Python than in C: `make bench-python`, or, on its own daemon,

    BUILD=build PYTHONPATH=build/python python3 tests/python/bench_attach.py [POOL] [ROUNDS]

Rounds in C and in Python take turns, each in a process of its own, so that other load of the machine slows
both. Prints medians over all attaches, and of the parts of the Python path.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parent))

from daemon import BUILD, Daemon

N = 2000


def python_round() -> None:
    """Attaches in one process, as attach.c does."""
    import gpushm

    clock, attaches, blocks = time.perf_counter_ns, [0] * N, [0] * N
    gpushm.open("bench").close()
    for i in range(N):
        began = clock()
        gpushm.open("bench").close()
        attaches[i] = clock() - began
    for i in range(N):
        began = clock()
        with gpushm.open("bench"):
            pass
        blocks[i] = clock() - began
    nothing = [0] * N
    for i in range(N):
        began = clock()
        nothing[i] = clock() - began
    # Subtracts the time of reading the clock (in C a vDSO call, some 25 ns). Prints later, to leave the caches alone.
    look = median(nothing) - 25
    print(*(t - look for t in attaches + blocks), sep="\n")


def run(*command: str | Path) -> list[str]:
    """The lines that one round prints."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.splitlines()


def main() -> None:
    """Runs both in turns, and prints the results."""
    pool = sys.argv[1] if len(sys.argv) > 1 else "host"
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 10
    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    import gpushm

    in_c: list[float] = []
    in_python: list[float] = []
    in_blocks: list[float] = []
    try:
        with gpushm.create("bench", (1024, 1024), "float32", pool=pool) as a:
            a.publish()
            for _ in range(rounds):
                in_c += map(float, run(BUILD / "tests/python/attach", "bench", str(N)))
                attaches = list(map(float, run(sys.executable, __file__, "--round")))
                in_python += attaches[:N]
                in_blocks += attaches[N:]
        gpushm.unlink("bench")
        gpushm.connect().close()
    finally:
        daemon.remove()
    c, python, block = median(in_c) / 1e3, median(in_python) / 1e3, median(in_blocks) / 1e3
    print(f"{pool}, {rounds} rounds of {N} attaches, medians in us")
    print(f"  C       open, array, close        {c:6.2f}")
    print(f"  Python  open().close()            {python:6.2f}   {python - c:+.2f}")
    print(f"  Python  with open()               {block:6.2f}   {block - c:+.2f}")


if __name__ == "__main__":
    if sys.argv[1:] == ["--round"]:
        python_round()
    else:
        main()
