# SPDX-License-Identifier: MIT
"""For tests of two GPUs: which there are, and threads that work on one of them."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import gpushm

GPU_POOLS = {p.name: p.device for p in gpushm.pools() if p.kind in ("vmm", "mempool") and not p.failed}
GPUS = sorted(set(GPU_POOLS.values()))
# Each pool, its GPU, and each other GPU.
PAIRS = [(pool, own, other) for pool, own in GPU_POOLS.items() for other in GPUS if other != own]


@contextmanager
def working_on(device: int) -> Iterator[None]:
    """A section in which this thread works on that GPU, as after torch.cuda.set_device()."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == 0
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    try:
        yield
    finally:
        cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
        cuda.cuDevicePrimaryCtxRelease_v2(device)


def in_thread(work: Callable[[], Any]) -> Any:
    """The result of work() in a new thread."""
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as e:
            results.append(e)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if isinstance(results[0], BaseException):
        raise results[0]
    return results[0]
