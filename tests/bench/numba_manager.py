# SPDX-License-Identifier: MIT
"""Numba's own memory manager beside gpushm's, by turns, N rounds; prints medians as a table of Markdown.

    BUILD=build PYTHONPATH=build/python python tests/bench/numba_manager.py [--rounds 5] [--large 1024]

It starts a daemon of its own from $BUILD. Each manager has two processes: one that makes arrays, and one that waits for
their handles. The open is timed from get_ipc_handle() to the answer of the other process, which has the array open.
"""

import argparse
import multiprocessing as mp
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from daemon import Daemon

MIB = 1 << 20


def receiver(pipe):
    """Opens the handles that come, answers, and closes them."""
    from numba import cuda

    cuda.current_context()
    while (handles := pipe.recv()) is not None:
        arrays = [h.open() for h in handles]
        pipe.send(len(arrays))
        for h in handles:
            h.close()
        pipe.send(None)


def allocate(cuda, nbytes, n):
    """Microseconds for an array and its end."""
    begun = time.perf_counter()
    for _ in range(n):
        cuda.device_array(nbytes, "uint8")
    return (time.perf_counter() - begun) / n * 1e6


def share(cuda, pipe, arrays):
    """Microseconds from get_ipc_handle() of all arrays until the other process has them open."""
    begun = time.perf_counter()
    pipe.send([a.get_ipc_handle() for a in arrays])
    pipe.recv()
    took = (time.perf_counter() - begun) * 1e6
    pipe.recv()
    return took


def held(cuda, n):
    """MiB of the GPU that n arrays of 4 KiB take."""
    before = cuda.current_context().get_memory_info().free
    arrays = [cuda.device_array(4096, "uint8") for _ in range(n)]
    return (before - cuda.current_context().get_memory_info().free + 0 * len(arrays)) / MIB


def worker(pipe, large, n):
    """Measures what it is told to."""
    from numba import cuda

    here, there = mp.Pipe()
    other = mp.get_context("spawn").Process(target=receiver, args=(there,), daemon=False)
    other.start()
    # First: memory that is kept for reuse would be counted as nothing.
    memory = held(cuda, n)
    one, many = cuda.device_array(2 * MIB, "uint8"), [cuda.device_array(2 * MIB, "uint8") for _ in range(100)]
    calls = {
        "device_array + free, 4 KiB, us": lambda: allocate(cuda, 4096, 2000),
        "device_array + free, 2 MiB, us": lambda: allocate(cuda, 2 * MIB, 500),
        f"device_array + free, {large} MiB, us": lambda: allocate(cuda, large * MIB, 100),
        "get_ipc_handle to an open array, 2 MiB, us": lambda: statistics.median(
            share(cuda, here, [one]) for _ in range(50)
        ),
        "the same, 100 arrays, us": lambda: share(cuda, here, many),
        f"{n:,} arrays of 4 KiB, MiB": lambda: memory,
    }
    pipe.send(list(calls))
    while (what := pipe.recv()) is not None:
        try:
            pipe.send(calls[what]())
        except Exception as e:
            pipe.send(f"{type(e).__name__}: {e}")
    here.send(None)
    other.join()


def main():
    """Starts the processes, and prints the table."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument("--large", type=int, default=1024, help="MiB of the large array")
    options.add_argument("--arrays", type=int, default=10000, help="how many small arrays")
    given = options.parse_args()
    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    workers = {}
    for manager in ("default", "gpushm.numba"):
        os.environ["NUMBA_CUDA_MEMORY_MANAGER"] = manager
        pipe, theirs = mp.Pipe()
        process = mp.get_context("spawn").Process(target=worker, args=(theirs, given.large, given.arrays))
        process.start()
        theirs.close()
        workers[manager] = pipe, process
        rows = pipe.recv()  # one after the other, so that the memory of each is counted alone
    print("| what | Numba's own | gpushm.numba | ratio |\n|---|---|---|---|")
    for what in rows:
        found = {manager: [] for manager in workers}
        for _ in range(given.rounds):
            for manager, (pipe, _process) in workers.items():
                pipe.send(what)
                found[manager].append(pipe.recv())
        errors = [x for each in found.values() for x in each if isinstance(x, str)]
        if errors:
            print(f"| {what} | {errors[0]} | | |")
            continue
        own, ours = (statistics.median(each) for each in found.values())
        print(f"| {what} | {own:.1f} | {ours:.1f} | {ours / own if own else 0:.2f} |")
    for pipe, process in workers.values():
        pipe.send(None)
        process.join()
    daemon.remove()


if __name__ == "__main__":
    main()
