# SPDX-License-Identifier: MIT
"""What it takes to let go of memory and to come back, beside the driver's calls alone, by turns in one run.

    make bench-memory, or BUILD=build PYTHONPATH=build/python python3 tests/bench/memory.py [--gib N] [--rounds N]

It starts a daemon of its own from $BUILD, and needs a GPU, cuda.bindings and 3 * N GiB of the host's memory. Prints a table:
medians in ms, and the ratio to the driver's row above it.
"""
import argparse
import ctypes
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

from cuda.bindings import driver

from daemon import BUILD, Daemon

CONFIG = """
[pool gpu]
kind=vmm
device=0
size={gib}G
[pool pinned]
kind=pinned
size={gib}G
"""


def call(result):
    """What a call of cuda.bindings returns, without its status."""
    status, *rest = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(status)
    return rest[0] if len(rest) == 1 else rest


class Memory:
    """Memory of the GPU, imported and mapped as the library does it."""

    def __init__(self, size):
        self.size = size
        where = driver.CUmemLocation()
        where.type, where.id = driver.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE, 0
        kind = driver.CUmemAllocationHandleType.CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        properties = driver.CUmemAllocationProp()
        properties.type = driver.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location, properties.requestedHandleTypes = where, kind
        self.kind = kind
        self.access = driver.CUmemAccessDesc()
        self.access.location = where
        self.access.flags = driver.CUmemAccess_flags.CU_MEM_ACCESS_FLAGS_PROT_READ
        handle = call(driver.cuMemCreate(size, properties, 0))
        self.fd = int(call(driver.cuMemExportToShareableHandle(handle, kind, 0)))
        self.at = call(driver.cuMemAddressReserve(size, 0, 0, 0))
        call(driver.cuMemRelease(handle))
        self.resume()

    def resume(self):
        handle = call(driver.cuMemImportFromShareableHandle(self.fd, self.kind))
        call(driver.cuMemMap(self.at, self.size, 0, handle, 0))
        call(driver.cuMemSetAccess(self.at, self.size, [self.access], 1))
        call(driver.cuMemRelease(handle))

    def suspend(self):
        call(driver.cuMemUnmap(self.at, self.size))

    def close(self):
        self.suspend()
        call(driver.cuMemAddressFree(self.at, self.size))
        os.close(self.fd)


def timed(function, *args):
    start = time.monotonic_ns()
    function(*args)
    return (time.monotonic_ns() - start) / 1e6


def turns(rounds, **ways):
    """The median of each way, in ms, with the ways by turns."""
    times = {way: [] for way in ways}
    for n in range(rounds + 1):
        for way, function in ways.items():
            took = function()
            if n:  # the first of each makes what it makes once
                times[way].append(took)
    return {way: statistics.median(found) for way, found in times.items()}


def row(what, beside, ours):
    print(f"| {what} | {beside:.3f} | {ours:.3f} | {ours / beside:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gib", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    size = args.gib << 30

    call(driver.cuInit(0))
    call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(0))))
    daemon = Daemon(CONFIG.format(gib=args.gib))
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    import gpushm

    print(f"| {args.gib} GiB, ms | the driver alone | gpushm | ratio |\n|--|--|--|--|")
    alone = Memory(size)
    array = gpushm.create("model", size, pool="gpu")
    array.publish("sealed")
    buffer = array.buffer
    suspends = turns(args.rounds, alone=lambda: (timed(alone.suspend), alone.resume())[0],
                     ours=lambda: (timed(buffer.suspend), buffer.resume())[0])
    row("suspend, nothing queued", suspends["alone"], suspends["ours"])
    resumes = turns(args.rounds, alone=lambda: (alone.suspend(), timed(alone.resume))[1],
                    ours=lambda: (buffer.suspend(), timed(buffer.resume))[1])
    row("resume, the same memory", resumes["alone"], resumes["ours"])
    alone.close()

    ctl = [BUILD / "gpushmctl", "--socket", daemon.socket]
    start = time.monotonic_ns()
    subprocess.run([*ctl, "demote", "--pool", "pinned", "model"], check=True)
    print(f"twin made in {(time.monotonic_ns() - start) / 1e9:.1f} s", flush=True)

    def from_twin():
        buffer.suspend()
        subprocess.run([*ctl, "evict", "model"], check=True)
        return timed(buffer.resume)

    host = call(driver.cuMemHostAlloc(size, 0))
    ctypes.memset(int(host), 1, 1 << 20)
    target = call(driver.cuMemAlloc(size))
    restored = turns(3, alone=lambda: timed(lambda: call_copy(target, host, size)), ours=from_twin)
    row("resume from a twin, beside a pinned copy", restored["alone"], restored["ours"])
    daemon.remove()


def call_copy(target, host, size):
    call(driver.cuMemcpyHtoD(target, host, size))


if __name__ == "__main__":
    main()
