# SPDX-License-Identifier: MIT
"""For tests on a real GPU, with other libraries in the process.

Libraries open files when they are first used. So buffers and leases are counted around each test, but descriptors only
in tests that repeat something.
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
sys.path.append(str(Path(__file__).parent.parent))
os.environ["NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT"] = "0"  # What a test closes is gone at its end.

from libraries import GPU

GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool") and not p.failed]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips these tests without a GPU."""
    if not GPU_POOLS:
        # `items` also has the tests of other folders.
        for item in (i for i in items if Path(__file__).parent in i.path.parents):
            item.add_marker(pytest.mark.skip(reason="no GPU"))


@pytest.fixture(scope="session")
def workers() -> Iterator[ProcessPoolExecutor]:
    """Two processes that were spawned, and share nothing with this one."""
    with ProcessPoolExecutor(2, mp.get_context("spawn")) as executor:
        yield executor


@pytest.fixture
def kernels() -> None:
    """For tests that run kernels, which the fake driver cannot."""
    if hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_handed_out"):
        pytest.skip("the fake driver runs no kernels")


@pytest.fixture(autouse=True)
def nothing_is_left(warmed_up: None) -> Iterator[None]:
    """Checks that each test leaves no buffer and no lease, however a library ends its arrays."""
    yield
    # The traceback of a failed test keeps its frames, and they keep arrays open.
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
    """Names that are unlinked at the end of the test."""
    names: list[str] = []

    def take(name: str = "a") -> str:
        names.append(name)
        return name

    yield take
    for name in names:
        gpushm.unlink(name)


def gpu_bytes() -> int:
    """Bytes in use on the libraries' GPU, by all processes. The driver answers only with a current context."""
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    cuda = ctypes.CDLL("libcuda.so.1")
    context = ctypes.c_void_p()
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), GPU) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    result = cuda.cuMemGetInfo_v2(ctypes.byref(free), ctypes.byref(total))
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(GPU)
    assert result == 0
    return total.value - free.value


@pytest.fixture
def grows() -> Callable[[Callable[[], Any]], list[str]]:
    """Repeats something 10 times to warm up and then 40 times; returns what that has left: descriptors, GPU memory."""

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
