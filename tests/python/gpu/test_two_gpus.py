# SPDX-License-Identifier: MIT
"""What two GPUs mean beside a library, $GPUSHM_LIBRARY: memory of one GPU, and work of the library on the other."""

from __future__ import annotations

import gc
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device
from gpus import GPU_POOLS, GPUS, PAIRS, in_thread
from libraries import GPU, LIBRARIES

NAME = os.environ.get("GPUSHM_LIBRARY", "torch")
if NAME not in ("torch", "cupy", "numba"):
    pytest.skip(f"{NAME}: it is not tested on two GPUs", allow_module_level=True)
if len(GPUS) < 2:
    pytest.skip("one GPU, or none: these tests need two", allow_module_level=True)
try:
    library: Any = LIBRARIES[NAME]()
except ImportError as e:
    pytest.skip(f"{NAME}: {e}", allow_module_level=True)

WANT = np.arange(42, dtype="f4").reshape(7, 6)


@contextmanager
def working_on(device: int) -> Iterator[None]:
    """A section in which this thread uses the library on that GPU."""
    if NAME == "torch":
        with library.torch.cuda.device(device):
            # Until its first work the thread has no context.
            library.torch.zeros(1, device="cuda")
            yield
    elif NAME == "cupy":
        with library.cupy.cuda.Device(device):
            library.cupy.zeros(1)
            yield
    else:
        with library.cuda.gpus[device]:
            library.cuda.current_context()
            yield


def device_of(t: Any) -> int:
    return int(t.device.index if NAME == "torch" else t.device.id)


@pytest.fixture(autouse=True)
def back_on_its_gpu() -> Iterator[None]:
    yield
    assert gpushm._core._current_device() in (None, GPU)


def filled(name: str, pool: str, **options: Any) -> gpushm.Array:
    a = gpushm.create(name, WANT.shape, WANT.dtype, pool=pool, **options)
    a.copy_from_host(WANT)
    return a


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_library_on_another_gpu_reads_and_writes_the_memory(
    pool: str, own: int, other: int, named: Any, kernels: None
) -> None:
    """Opened for the library's GPU, which reaches the memory of its peer."""
    with filled(named(), pool) as made:
        made.publish("shared")
        with working_on(other), gpushm.open("a", "r+", device="current") as a:
            assert a.__dlpack_device__() == (2, other)
            t = library.take(a)
            assert NAME == "numba" or device_of(t) == other
            assert library.bytes_of(t) == WANT.tobytes()
            library.write(t, WANT[::-1])
            library.synchronize()
            del t
            gc.collect()
        assert np.array_equal(made.copy_to_host(), WANT[::-1])


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_tensor_is_on_the_gpu_of_its_memory(
    pool: str, own: int, other: int, named: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened without a word about the GPU: for the memory's own one, with a warning."""
    if NAME == "numba":
        pytest.skip("it takes memory for its current GPU, whatever the memory says")
    monkeypatch.setattr("gpushm._libraries._said", set())
    with filled(named(), pool) as made:
        made.publish("shared")
        with working_on(other), warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            with gpushm.open("a", "r+") as a:
                t = library.take(a)
                assert device_of(t) == own and library.bytes_of(t) == WANT.tobytes()
                del t
        assert [w.category for w in found].count(gpushm.errors.DeviceWarning) == 1


@pytest.mark.parametrize("source", GPUS)
@pytest.mark.parametrize("pool", GPU_POOLS)
def test_what_a_library_made_on_another_gpu_is_copied(pool: str, source: int) -> None:
    """Alone, in parts, and many at once; from a thread that works on either GPU."""
    with working_on(source):
        t = library.make(WANT)
    for device in GPUS:
        with working_on(device):
            with to_device(t, pool=pool) as a:
                assert a.device == GPU_POOLS[pool] and np.array_equal(a.copy_to_host(), WANT)
            with gpushm.create(None, WANT.shape, WANT.dtype, pool=pool, device=GPU_POOLS[pool]) as a:
                a.fill(0)
                a[1:5] = t[3:7]
                assert np.array_equal(a.copy_to_host()[1:5], WANT[3:7]) and not a.copy_to_host()[5:].any()
            with gpushm.create_many(None, {f"p{i}": t[i] for i in range(7)}, pool=pool) as b:
                b.update({f"p{i}": t[6 - i] for i in range(7)})
                assert all(np.array_equal(b[f"p{i}"].copy_to_host(), WANT[6 - i]) for i in range(7))
    del t


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_publish_waits_for_a_kernel_on_another_gpu(
    pool: str, own: int, other: int, named: Any, kernels: None
) -> None:
    """A thread that works on one GPU queues a slow kernel there, on memory of the other one, and publishes."""

    def make() -> bytes:
        with working_on(other):
            a = gpushm.create(named(), WANT.shape, WANT.dtype, pool=pool, device="current")
            t = library.take(a)
            a.fill(0)
            with library.slow_write(t, 7):
                del t
                gc.collect()
                a.publish("shared")
                with gpushm.open("a", device=own) as b:
                    return bytes(b.copy_to_host().tobytes())

    assert in_thread(make) == np.full(WANT.shape, 7, "f4").tobytes()
    gc.collect()


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_two_threads_use_one_buffer_on_two_gpus(pool: str, own: int, other: int, named: Any, kernels: None) -> None:
    """Each opens it for its GPU, and reads what the other one has written."""
    with filled(named(), pool) as made:
        made.publish("shared")

        def use(device: int) -> bytes:
            with working_on(device), gpushm.open("a", "r+", device="current") as a:
                t = library.take(a)
                library.write(t, WANT * (device + 2))
                library.synchronize()
                found = library.bytes_of(t)
                del t
                gc.collect()
                return bytes(found)

        for device in (own, other, own):
            assert in_thread(lambda device=device: use(device)) == (WANT * (device + 2)).tobytes()
            assert np.array_equal(made.copy_to_host(), WANT * (device + 2))
