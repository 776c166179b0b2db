# SPDX-License-Identifier: MIT
"""One library, $GPUSHM_LIBRARY, as a consumer and as a producer, over all kinds of pool.

The default is NumPy, which every machine has.
"""

from __future__ import annotations

import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device
from libraries import LIBRARIES, MY_POOLS, POOLS, gpu_for

NAME = os.environ.get("GPUSHM_LIBRARY", "numpy")
try:
    library: Any = LIBRARIES[NAME]()
except ImportError as e:
    pytest.skip(f"{NAME}: {e}", allow_module_level=True)

MY_POOLS = [name for name, kind in MY_POOLS.items() if kind in library.kinds]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda a: a,
    "sliced": lambda a: a[1:5, 2:],
    "stepped": lambda a: a[::2, ::3],
    "transposed": lambda a: a.T,
    "reversed": lambda a: a[::-1, ::-1],
    "none": lambda a: a[3:3],
}


def numpy_dtype(name: str) -> Any:
    try:
        return np.dtype(name)
    except TypeError:
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return np.dtype(getattr(ml_dtypes, name))


def content(dtype: str, shape: tuple[int, ...] = (7, 6), start: int = 3) -> np.ndarray:
    """Bytes that are a valid, small, finite number of any type, all different."""
    numbers = (np.arange(int(np.prod(shape, dtype=np.int64))) * 5 + start) % 47
    return (numbers % 2 if dtype == "bool" else numbers).astype(numpy_dtype(dtype)).reshape(shape)


def filled(name: str, want: np.ndarray, pool: str, state: str) -> gpushm.Array:
    a = gpushm.create(name, want.shape, want.dtype, pool=pool, device=gpu_for(pool))
    a.copy_from_host(want)
    a.publish(state)
    return a


def refused(layout: str) -> Any:
    return pytest.raises((ValueError, TypeError, RuntimeError, BufferError, NotImplementedError))


# ---- consuming ----


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", library.dtypes)
@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_library_reads_and_writes_the_arrays_elements(pool: str, dtype: str, layout: str, named: Any) -> None:
    want, fresh, view = content(dtype), content(dtype, start=11), LAYOUTS[layout]
    with filled(named(), want, pool, "shared") as made, gpushm.open("a", "r+", device=gpu_for(pool)) as a:
        v = view(a)
        if layout in library.REFUSES:
            with refused(layout):
                library.take(v)
            return
        t = library.take(v)
        assert tuple(t.shape) == view(want).shape
        assert library.bytes_of(t) == view(want).tobytes()
        if library.write is not None:
            library.write(t, np.ascontiguousarray(view(fresh)))
            library.synchronize()
            view(want)[...] = view(fresh)
            assert made.copy_to_host().tobytes() == want.tobytes()
        del t, v


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,) * 31 + (2,)], ids=lambda s: f"{len(s)}-d")
@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_shape_at_the_edge_is_kept_or_refused(pool: str, shape: tuple[int, ...], named: Any) -> None:
    want = content("float32", shape)
    with filled(named(), want, pool, "shared"), gpushm.open("a", "r+", device=gpu_for(pool)) as a:
        try:
            t = library.take(a)
        except (ValueError, RuntimeError, TypeError, BufferError) as e:
            # Some libraries have a smaller limit of dimensions, and must raise.
            assert len(shape) > 8, e
            return
        assert tuple(t.shape) == shape and library.bytes_of(t) == want.tobytes()
        del t


@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_type_is_kept_or_refused_by_the_library(pool: str, named: Any) -> None:
    with gpushm.create(named(), 16, "float4_e2m1fn", pool=pool, device=gpu_for(pool)) as a:
        a.copy_from_host(bytes(range(8)))
        a.publish("shared")
        try:
            t = library.take(a)
            told = str(t.dtype)
        except (ValueError, RuntimeError, TypeError, BufferError, AttributeError, NotImplementedError) as e:
            assert str(e)
            return
        assert "float4" in told
        del t


WRITER = """
import os, sys
sys.path.insert(0, {folder!r})
import gpushm, numpy as np
from libraries import LIBRARIES, MY_POOLS, POOLS, gpu_for
library = LIBRARIES[{library!r}]()
a = gpushm.open("a", device={gpu})
assert a.readonly
try:
    t = library.take(a)
except Exception as e:
    print("refused", type(e).__name__, flush=True)
    os._exit(0)
try:
    library.write(t, np.zeros(a.shape, a.dtype))
    library.synchronize()
except Exception as e:
    print("failed", type(e).__name__, flush=True)
    os._exit(0)
print("wrote", flush=True)
os._exit(0)
"""


@pytest.mark.skipif(library.write is None, reason="it writes nothing")
@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_read_only_array_keeps_its_contents(pool: str, named: Any) -> None:
    """The consumer refuses the array, or its write fails, or the write ends the process. Memory of a mempool is marked
    read-only but not protected; nor is pinned memory, for the GPU of a consumer that ignores the mark.
    """
    want = content("float32")
    with filled(named(), want, pool, "sealed") as a:
        code = WRITER.format(folder=os.path.dirname(__file__), library=NAME, gpu=gpu_for(pool))
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=100)
        how = done.stdout.strip() or f"died with {done.returncode}: {done.stderr[-200:]}"
        print(f"figure: | {NAME} | {pool} | read-only | {how.splitlines()[0]} |")
        if POOLS[pool] != "mempool":
            assert not how.startswith("wrote")
            assert a.copy_to_host().tobytes() == want.tobytes()
        assert done.returncode in (0, -11, -6), done.stderr


# ---- order ----

SLOW = pytest.mark.skipif(not hasattr(library, "slow_write"), reason="it queues nothing on streams")


@SLOW
@pytest.mark.parametrize("state", ["sealed", "shared"])
@pytest.mark.parametrize("pool", [name for name in MY_POOLS if POOLS[name] != "host"])
def test_publish_waits_for_a_kernel_on_another_stream(
    pool: str, state: str, named: Any, kernels: None, workers: Any
) -> None:
    if POOLS[pool] == "pinned" and NAME == "torch":
        pytest.skip("torch has it as memory of the CPU")
    a = gpushm.create(named(), (7, 6), "float32", pool=pool, device=gpu_for(pool))
    t = library.take(a)
    a.fill(0)
    workers.submit(os.getpid).result(100)  # The process has started.
    with library.slow_write(t, 7):
        del t  # A writable tensor would outlive the sealing. The kernel has its address.
        gc.collect()
        a.publish(state)
        got = workers.submit(bytes_in_another_process, a.handle()).result(100)[2]
    assert got == np.full((7, 6), 7, "f4").tobytes()
    a.close()


@SLOW
@pytest.mark.parametrize("pool", [name for name in MY_POOLS if POOLS[name] not in ("host", "pinned")])
def test_a_copy_waits_for_a_kernel_on_the_current_stream(pool: str, named: Any, kernels: None) -> None:
    want = np.full((7, 6), 7, "f4")
    with filled(named(), content("float32"), pool, "shared"), gpushm.open("a", "r+", device=gpu_for(pool)) as a:
        t = library.take(a)
        for read in (lambda: a.copy_to_host(), lambda: np.asarray(a), lambda: np.array(a.tolist(), "f4")):
            a.fill(0)
            with library.slow_write(t, 7):
                assert np.array_equal(read(), want)
        with library.slow_write(t, 3):
            assert a[6, 5] == 3
        with library.slow_write(t, 3), gpushm.create("b", (7, 6), "float32", pool=pool, device=gpu_for(pool)) as b:
            b.copy_to_device(a)
            assert (b.copy_to_host() == 3).all()
            b.discard()
        for write in (lambda: a.copy_from_host(want), lambda: a.fill(7), lambda: a.__setitem__(..., want)):
            with library.slow_write(t, 3):
                write()
            library.synchronize()
            assert np.array_equal(a.copy_to_host(), want)
        del t


@pytest.mark.skipif(NAME != "torch", reason="PyTorch copies to registered memory")
def test_publish_waits_for_a_copy_to_registered_memory(named: Any, kernels: None, workers: Any) -> None:
    import torch

    with gpushm.create(named(), (7, 6), "float32", pool="host") as a, gpushm.numba.pinned(a):
        a.fill(0)
        t, source = torch.from_dlpack(a), torch.zeros((7, 6), device="cuda")
        workers.submit(os.getpid).result(100)
        with library.slow_write(source, 7):
            t.copy_(source, non_blocking=True)
            a.publish("shared")
            got = workers.submit(bytes_in_another_process, a.handle()).result(100)[2]
        assert got == np.full((7, 6), 7, "f4").tobytes()
        del t


# ---- comparisons ----


@pytest.mark.skipif(NAME not in ("torch", "cupy"), reason="another library compares")
@pytest.mark.parametrize("pool", [name for name in MY_POOLS if POOLS[name] not in ("host", "pinned")])
def test_comparison_is_done_by_the_library(pool: str, named: Any, kernels: None) -> None:
    want = content("float32")
    with filled(named(), want, pool, "shared"), gpushm.open("a", "r+", device=gpu_for(pool)) as a:
        t = library.make(want)
        for got, expected in ((a == 5, want == 5), (a == t, want == want), (a != a[...], want != want)):
            assert type(got) is type(t)
            assert np.array_equal(np.frombuffer(library.bytes_of(got), expected.dtype), expected.ravel())
        del t, got
        a.fill(2)
        assert a.tolist() == np.full((7, 6), 2.0).tolist() and bool((a == 2).all())


# ---- producing ----


def bytes_in_another_process(handle: gpushm.types.Handle) -> tuple[tuple[int, ...], str, bytes]:
    with handle as a:
        out = bytearray(a.nbytes)
        a.copy_to_host(out) if a.is_c_contiguous() else out.__init__(a.copy_to_host().tobytes())
        return a.shape, a.dtype_name, bytes(out)


@pytest.mark.skipif(library.make is None, reason="it makes no arrays")
@pytest.mark.parametrize("dtype", library.dtypes)
@pytest.mark.parametrize("pool", POOLS)
def test_what_a_library_made_arrives_in_another_process(pool: str, dtype: str, named: Any, workers: Any) -> None:
    want = content(dtype)
    made = library.make(want)
    with to_device(made, named(), pool=pool) as a:
        a.publish()
        told = workers.submit(bytes_in_another_process, a.handle()).result(100)
        assert told == (want.shape, dtype, want.tobytes())
    if "transposed" in library.REFUSES or NAME == "jax":
        return
    with gpushm.create(named("b"), want.T.shape, want.dtype, pool=pool) as b:
        b.copy_to_device(made.T)
        assert b.copy_to_host().tobytes() == want.T.tobytes()
        b.publish()


@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_librarys_view_of_an_array_is_found_in_its_buffer(pool: str, named: Any, workers: Any) -> None:
    """As the foreign arrays of numba-cuda's tests: an array that a library made can be sent on without a copy."""
    if NAME == "cuda-core":
        pytest.skip("its view is no exporter")
    want = np.arange(10, dtype="int32" if NAME == "jax" else "int64")  # JAX makes 32 bits of 64, by a copy.
    with filled(named(), want, pool, "shared") as a:
        t = library.take(a)
        for part in [slice(None), slice(3, None), slice(3, 8), slice(None, 8), slice(1, None, 3)]:
            if NAME == "jax" and part != slice(None):
                continue  # A slice of a jax.Array is a copy.
            found = gpushm.as_array(t if NAME == "jax" else t[part])
            assert found.buffer.id == a.buffer.id and found.offset == (part.start or 0) * want.itemsize
            assert np.array_equal(found.copy_to_host(), want[part])
            handle = pickle.loads(pickle.dumps(found.handle()))
            assert workers.submit(bytes_in_another_process, handle).result(100)[2] == want[part].tobytes()
            del found
        if library.make is not None and NAME != "numpy":
            with pytest.raises(TypeError, match="no buffer"):
                gpushm.as_array(library.make(want))
        del t


# ---- the end ----


@pytest.mark.parametrize("pool", MY_POOLS)
def test_opening_and_taking_leaks_nothing(pool: str, named: Any, grows: Any) -> None:
    with filled(named(), content("float32", (1024, 1024)), pool, "shared"):

        def once() -> None:
            with gpushm.open("a", "r+", device=gpu_for(pool)) as a:
                t = library.take(a)
                t = None  # noqa: F841

        assert grows(once) == []


@pytest.mark.parametrize("pool", MY_POOLS)
def test_making_and_taking_leaks_nothing(pool: str, grows: Any) -> None:
    def once() -> None:
        with gpushm.create("made", (1024, 1024), "float32", pool=pool, device=gpu_for(pool)) as a:
            t = library.take(a)
            t = None  # noqa: F841

    assert grows(once) == []


@pytest.mark.parametrize("pool", MY_POOLS)
def test_closing_a_buffer_below_a_tensor_is_refused(pool: str, named: Any) -> None:
    with filled(named(), content("float32"), pool, "shared"):
        a = gpushm.open("a", "r+", device=gpu_for(pool))
        t = library.take(a)
        if NAME in ("numba", "cupy-cai") or (NAME == "cupy" and POOLS[pool] == "pinned"):
            # The CUDA Array Interface does not report the end of a use: the caller must keep the Array.
            assert library.bytes_of(t) == content("float32").tobytes()
        else:
            with pytest.raises(gpushm.errors.InUse, match=r"tensor|NumPy array|memoryview"):
                a.close()
            assert library.bytes_of(t) == content("float32").tobytes()
        del t
        a.close()
