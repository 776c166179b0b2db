# SPDX-License-Identifier: MIT
"""Suspend and resume of one process, beside the driver's calls alone, by turns.

The driver's suspend waits for the context's work, as the library's does. Needs cuda.bindings and 2 * --gib of the host's
memory. Rows are medians in ms, and the ratio to the driver's.
"""
import ctypes
import os
import statistics

import common
from common import timed
from cuda.bindings import driver


def call(result):
    """What a call of cuda.bindings returns, without its status."""
    status, *rest = result
    if status != driver.CUresult.CUDA_SUCCESS:
        raise RuntimeError(status)
    return rest[0] if len(rest) == 1 else rest


def start():
    call(driver.cuInit(0))
    call(driver.cuCtxSetCurrent(call(driver.cuDevicePrimaryCtxRetain(0))))


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
        call(driver.cuCtxSynchronize())
        call(driver.cuMemUnmap(self.at, self.size))

    def close(self):
        self.suspend()
        call(driver.cuMemAddressFree(self.at, self.size))
        os.close(self.fd)


def turns(rounds, **ways):
    """The median of each way, in ms, with the ways by turns."""
    times = {way: [] for way in ways}
    for n in range(rounds + 1):
        for way, function in ways.items():
            took = function()
            if n:  # the first of each makes what it makes once
                times[way].append(took)
    return {way: statistics.median(found) for way, found in times.items()}


def row(what, times, wanted):
    common.row(what, f"{times['alone']:.3f}", f"{times['ours']:.3f}, {times['ours'] / times['alone']:.2f} x", wanted, times=times)


def run(args):
    size = int(args.gib * 2**30)
    start()
    with common.pools(1, 1, size), common.connection() as c, c.open("m0", timeout=60) as buffer:
        alone = Memory(size)
        row("suspend, nothing queued", turns(10, alone=lambda: (timed(alone.suspend), alone.resume())[0],
                                             ours=lambda: (timed(buffer.suspend), buffer.resume())[0]), "<= 1.2 x")
        row("resume, the same memory", turns(10, alone=lambda: (alone.suspend(), timed(alone.resume))[1],
                                             ours=lambda: (buffer.suspend(), timed(buffer.resume))[1]), "<= 1.2 x")
        alone.close()

        def from_twin(away):
            away.suspend()
            common.ctl("evict", "m0")
            return timed(away.resume)

        def from_new_twin():
            """The first time of an open, when the twin is not mapped yet."""
            with c.open("m0", timeout=60) as again:
                return from_twin(again)

        host = call(driver.cuMemHostAlloc(size, 0))
        ctypes.memset(int(host), 1, 1 << 20)
        target = call(driver.cuMemAlloc(size))

        def copy():
            return timed(lambda: call(driver.cuMemcpyHtoD(target, host, size)))

        buffer.suspend()
        row("resume from a twin the first time, beside a pinned copy", turns(3, alone=copy, ours=from_new_twin), "<= 1.11 x")
        row("resume from a twin again, beside a pinned copy", turns(3, alone=copy, ours=lambda: from_twin(buffer)), "<= 1.11 x")
