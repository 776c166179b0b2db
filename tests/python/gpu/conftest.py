# SPDX-License-Identifier: MIT
"""The same as for every test of the package, on a real GPU, with what other libraries leave in a process.

They open files when they are first used, so descriptors are not counted around each test here, but by the tests
that repeat something. Buffers and leases are.
"""

from __future__ import annotations

import ctypes
import gc
import multiprocessing as mp
import os
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import gpushm
import pytest

sys.path.insert(0, str(Path(__file__).parent))

GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool") and not p.failed]
MAPPED_POOLS = [p.name for p in gpushm.pools() if p.kind != "host" and not p.failed]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Without a GPU these tests say so, and pass."""
    if not GPU_POOLS:
        # Of all that were collected, those of other folders too.
        for item in (i for i in items if Path(__file__).parent in i.path.parents):
            item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture(scope="session")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Two processes that were spawned; they know only what they are sent."""
    with ProcessPoolExecutor(2, mp.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def kernels() -> None:
    """A driver that runs them; the fake one does not."""
    if hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_handed_out"):
        pytest.skip("the fake driver runs no kernels")


@pytest.fixture(autouse=True)
def nothing_is_left(warmed_up: None) -> Iterator[None]:
    """Each test leaves no buffer and no lease, whatever a library thinks of its arrays' end."""
    yield
    # A failed test's frames, which its traceback keeps, hold what it had open.
    sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    left = gpushm.ls()
    for buffer in left:
        if buffer.name:
            gpushm.unlink(buffer.name)
    assert left == []
    end = time.monotonic() + 60
    while (leases := gpushm.status().leases) and time.monotonic() < end:
        pass
    assert leases == 0


@pytest.fixture
def named() -> Iterator[Callable[..., str]]:
    """Names that are free again when the test is over."""
    names: list[str] = []

    def take(name: str = "a") -> str:
        names.append(name)
        return name

    yield take
    for name in names:
        gpushm.unlink(name)


def gpu_bytes() -> int:
    """In use on GPU 0, by whoever; a context is current, or it is asked for nothing."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    result = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(0)
    assert result == 0
    return total.value - free.value


@pytest.fixture
def grows() -> Callable[[Callable[[], Any]], list[str]]:
    """Does something 10 times to warm it up, then 40 times, and tells what it left: descriptors, GPU memory."""

    def fds() -> int:
        return len(os.listdir("/proc/self/fd"))

    def run(something: Callable[[], Any]) -> list[str]:
        for _ in range(10):
            something()
        gc.collect()
        gpushm.flush()
        before = fds(), gpu_bytes()
        for _ in range(40):
            something()
        gc.collect()
        gpushm.flush()
        after = fds(), gpu_bytes()
        left = [] if after[0] <= before[0] else [f"{after[0] - before[0]} descriptors"]
        return left + ([] if after[1] <= before[1] else [f"{after[1] - before[1]} bytes of GPU memory"])

    return run
