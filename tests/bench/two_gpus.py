# SPDX-License-Identifier: MIT
"""What memory of one GPU costs a user on another one, beside a user on its own.

    BUILD=build PYTHONPATH=build/python python3 tests/bench/two_gpus.py [--gib 16] [--rounds 20]

Each row: medians in ms for its own GPU and for the other one, by turns in one process, and their ratio.
"""

import argparse
import importlib
import os
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import gpushm
from daemon import Daemon


def timed(call):
    """Milliseconds, and what it returned."""
    start = time.perf_counter()
    found = call()
    return (time.perf_counter() - start) * 1e3, found


def attaches(rounds):
    times = {}
    for _ in range(rounds):
        for device in (0, 1):
            ms, a = timed(lambda device=device: gpushm.open("model", device=device))
            times.setdefault("attach", ([], []))[device].append(ms)
            times.setdefault("suspend", ([], []))[device].append(timed(a.suspend)[0])
            times.setdefault("resume", ([], []))[device].append(timed(lambda a=a: a.resume(timeout=10))[0])
            a.close()
    return times


def copies(nbytes, rounds, working_on):
    """Of an array on GPU 0, by each GPU into a pool of its own."""
    times = ([], [])
    with gpushm.open("model") as whole:
        part = whole[:nbytes]
        for _ in range(rounds):
            for device in (0, 1):
                with working_on(device), gpushm.create(None, nbytes, pool=f"gpu{device}") as to:
                    times[device].append(timed(lambda to=to: to.copy_to_device(part))[0])
    return {f"copy of {nbytes >> 20} MiB": times}


def frames(rounds, working_on):
    """From the end of a frame that GPU 0 has written to the reader that has it; no process waits for another."""
    times = ([], [])
    with gpushm.stream("frames", {"x": ((1 << 20,), "uint8")}, slots=3, pool="gpu0") as stream:
        readers = [gpushm.follow("frames", device=device) for device in (0, 1)]
        for _ in range(rounds * 50):
            with working_on(0), stream.frame() as f:
                f["x"].fill(1)
            for device, reader in enumerate(readers):
                ms, frame = timed(reader.next)
                times[device].append(ms)
                frame.release()
    return {"take a frame of a stream": times}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--rounds", type=int, default=20)
    args = parser.parse_args()
    nbytes = int(args.gib * 2**30)
    pools = (f"[pool gpu{i}]\nkind=vmm\ndevice={i}\nsize={2 * nbytes + (64 << 20)}\n" for i in (0, 1))
    daemon = Daemon("".join(pools))
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    with gpushm.create("model", nbytes, pool="gpu0") as model:
        model.publish()
    working_on = importlib.import_module("gpus").working_on  # asks the daemon
    times = attaches(args.rounds) | copies(nbytes >> 4, args.rounds, working_on) | frames(args.rounds, working_on)
    print("| what | GPU 0 | GPU 1 | ratio |\n|--|--|--|--|")
    for what, (own, other) in times.items():
        a, b = statistics.median(own), statistics.median(other)
        print(f"| {what} | {a:.3f} ms | {b:.3f} ms | {b / a:.2f} |")
    gpushm.unlink("model")
    daemon.remove()


if __name__ == "__main__":
    main()
