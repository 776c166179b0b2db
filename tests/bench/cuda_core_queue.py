# SPDX-License-Identifier: MIT
"""cuda.core's sample, timed: a Buffer through a queue to a DLPack tensor in a waiting process, cuda.core's own memory
resource and gpushm.cuda_core's by turns in one run.

    BUILD=build PYTHONPATH=build/python python3 tests/bench/cuda_core_queue.py [--rounds N] [--pool POOL ...]

It starts a daemon of its own from $BUILD, and needs cuda.core. Each round allocates a Buffer, and takes the time from put() until
the other process has the tensor; both processes close it then. Prints a table: medians in us, and how often gpushm is
faster than cuda.core. The tensor is CuPy's where CuPy works, and else a bare capsule.
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

SIZES = [4096, 2 << 20, 64 << 20]
SECONDS = 60


def importer():
    """What makes a tensor of a Buffer."""
    try:
        import cupy
        cupy.cuda.runtime.getDeviceCount()
        return cupy.from_dlpack, "CuPy"
    except Exception:
        return lambda buffer: buffer.__dlpack__(), "a capsule"


def child(given, told):
    from cuda.core import Device
    device = Device(0)
    device.set_current()
    tensor_of, name = importer()
    told.put(name)
    while (buffer := given.get()) is not None:
        tensor = tensor_of(buffer)
        told.put(time.monotonic_ns())
        del tensor
        buffer.close()
        device.default_stream.sync()


def resources(pools, device):
    import cuda.core
    import gpushm
    from gpushm import cuda_core
    options = cuda.core.DeviceMemoryResourceOptions(max_size=1 << 30, ipc_enabled=True)
    yield "cuda.core", cuda.core.DeviceMemoryResource(device, options=options)
    for pool in pools or [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool") and p.device == 0]:
        yield f"gpushm, {pool}", cuda_core.DeviceMemoryResource(device, options=options, pool=pool)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--pool", action="append")
    args = parser.parse_args()

    from cuda.core import Device
    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    device = Device(0)
    device.set_current()
    context = mp.get_context("spawn")
    given, told = context.Queue(), context.Queue()
    other = context.Process(target=child, args=(given, told), daemon=True)
    given.cancel_join_thread()  # a child that died reads no more
    other.start()
    tensor = told.get(timeout=SECONDS)
    ways = dict(resources(args.pool, device))

    def once(mr, size):
        buffer = mr.allocate(size, stream=device.default_stream)
        device.default_stream.sync()
        start = time.monotonic_ns()
        given.put(buffer)
        taken = told.get(timeout=SECONDS) - start
        buffer.close()
        device.default_stream.sync()
        return taken / 1000

    print(f"| bytes to {tensor} | way | median us | p90 | x cuda.core's |\n|--|--|--|--|--|")
    for size in SIZES:
        times = {way: [] for way in ways}
        for n in range(args.rounds + 10):
            for way, mr in ways.items():
                took = once(mr, size)
                if n >= 10:  # before, each way makes what it makes once
                    times[way].append(took)
        base = statistics.median(times["cuda.core"])
        for way, found in times.items():
            median = statistics.median(found)
            p90 = sorted(found)[len(found) * 9 // 10]
            print(f"| {size} | {way} | {median:.0f} | {p90:.0f} | {base / median:.1f} |")
    given.put(None)
    other.join(SECONDS)
    daemon.remove()


if __name__ == "__main__":
    main()
