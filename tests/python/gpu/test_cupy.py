# SPDX-License-Identifier: MIT
"""gpushm.cupy with CuPy: arrays in the daemon's pools, names, and handles for other processes."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import gpushm
import numpy as np
import pytest
from libraries import GPU, MY_POOLS

cupy = pytest.importorskip("cupy")
POOLS = [name for name, kind in MY_POOLS.items() if kind in ("vmm", "mempool")]
if not POOLS:
    pytest.skip("no GPU", allow_module_level=True)

import gpushm.cupy  # noqa: E402


@pytest.fixture(params=POOLS)
def allocator(request: pytest.FixtureRequest) -> Iterator[Any]:
    cupy.cuda.Device(GPU).use()
    before = cupy.cuda.get_allocator()
    made = gpushm.cupy.Allocator(request.param)
    cupy.cuda.set_allocator(made)
    yield made
    cupy.cuda.set_allocator(before)
    made._blocks.clear()


def doubled(pickled: bytes) -> float:
    cupy.cuda.Device(GPU).use()
    array = pickle.loads(pickled).open()
    array *= 2
    cupy.cuda.Device().synchronize()
    return float(array.sum())


@pytest.mark.parametrize("n", [5, 1 << 20])
def test_a_handle_opens_in_another_process(allocator: Any, workers: Any, n: int) -> None:
    array = cupy.arange(n, dtype="float32")
    want = float(array.sum()) * 2
    assert workers.submit(doubled, pickle.dumps(gpushm.cupy.handle(array))).result(60) == pytest.approx(want)
    assert float(array.sum()) == pytest.approx(want)
    assert workers.submit(doubled, pickle.dumps(gpushm.cupy.handle(array[1:4]))).result(60) == 24
    del array


def test_a_published_array_is_its_own_memory_or_a_copy(allocator: Any) -> None:
    for n, whole in ((1 << 20, True), (7, False)):
        array = cupy.arange(n, dtype="int32").reshape(n, 1)
        published = gpushm.cupy.publish(array, "c")
        with gpushm.open("c") as other:
            assert (other.shape, str(other.dtype)) == ((n, 1), "int32")
            assert np.array_equal(other.copy_to_host(), array.get())
        assert (published.device_ptr == array.data.ptr) == whole
        del published
        gpushm.stat("c")
        del array
        with pytest.raises(gpushm.errors.NotFound):
            gpushm.stat("c")


def test_cupys_pool_takes_it(allocator: Any) -> None:
    pool = cupy.cuda.MemoryPool(allocator)
    cupy.cuda.set_allocator(pool.malloc)
    arrays = [cupy.full(1024, n, "float32") for n in range(1000)]
    assert float(sum(a[0] for a in arrays)) == 499500
    assert len(gpushm.ls()) <= 3
    assert gpushm.cupy.handle(arrays[5]).open()[0] == 5
    del arrays
    pool.free_all_blocks()


def test_memory_that_is_not_the_daemons_is_refused() -> None:
    cupy.cuda.Device(GPU).use()
    with pytest.raises(TypeError, match="from no buffer"):
        gpushm.cupy.handle(cupy.zeros(16))
