# SPDX-License-Identifier: MIT
"""Numba's kernels on gpushm's arrays, and calls of Numba's with gpushm's call for each."""

from __future__ import annotations

import functools
import multiprocessing as mp
from typing import Any

import gpushm
import libraries
import numpy as np
import pytest
from copies import to_device

cuda = pytest.importorskip("numba.cuda")
numba = pytest.importorskip("numba")
if not cuda.is_available():
    pytest.skip("Numba sees no GPU", allow_module_level=True)

cuda.select_device(libraries.GPU)
POOLS = [name for name, kind in libraries.MY_POOLS.items() if kind != "host"]
GPU = libraries.GPU
WEIGHTS = np.arange(8, dtype=np.float32) / 8
POINT = np.dtype([("x", "f4"), ("y", "f4"), ("tag", "i4", (2,))], align=True)


@functools.cache
def no_kernels() -> str:
    """The reason why Numba can make no kernels here; "": it can."""
    try:
        libraries.Numba()
    except ImportError as e:
        return str(e)
    return ""


@pytest.fixture
def kernels(kernels: None) -> None:
    if no_kernels():
        pytest.skip(no_kernels())


def filled(name: str, want: np.ndarray, pool: str, state: str = "shared") -> gpushm.Array:
    a = gpushm.create(name, want.shape, want.dtype, pool=pool, device=GPU)
    a.copy_from_host(want)
    a.publish(state)
    return a


# ---- kernels ----


@pytest.mark.parametrize("pool", POOLS)
def test_a_kernel_with_shared_memory_and_syncthreads_adds_up(pool: str, named: Any, kernels: None) -> None:
    @cuda.jit
    def block_sums(data: Any, sums: Any) -> None:
        part = cuda.shared.array(64, numba.float32)
        i, t = cuda.grid(1), cuda.threadIdx.x
        part[t] = data[i] if i < data.shape[0] else 0
        cuda.syncthreads()
        half = 32
        while half > 0:
            if t < half:
                part[t] += part[t + half]
            cuda.syncthreads()
            half //= 2
        if t == 0:
            sums[cuda.blockIdx.x] = part[0]

    want = np.arange(256, dtype=np.float32)
    with filled(named(), want, pool) as a, gpushm.create(named("sums"), 4, "float32", pool=pool, device=GPU) as sums:
        block_sums[4, 64](a, sums)
        cuda.synchronize()
        assert np.array_equal(sums.copy_to_host(), want.reshape(4, 64).sum(1))
        sums.publish()


@pytest.mark.parametrize("pool", POOLS)
def test_a_kernel_with_constant_and_local_memory_reads_the_array(pool: str, named: Any, kernels: None) -> None:
    @cuda.jit
    def smooth(data: Any, out: Any) -> None:
        weights = cuda.const.array_like(WEIGHTS)
        window = cuda.local.array(8, numba.float32)
        i = cuda.grid(1)
        if i < out.shape[0]:
            for k in range(8):
                window[k] = data[i + k]
            total = numba.float32(0)
            for k in range(8):
                total += window[k] * weights[k]
            out[i] = total

    want = np.arange(64, dtype=np.float32)
    with (
        filled(named(), want, pool, "sealed") as a,
        gpushm.create(named("out"), 57, "float32", pool=pool, device=GPU) as out,
    ):
        smooth[1, 64](a, out)
        cuda.synchronize()
        expected = [np.dot(want[i : i + 8], WEIGHTS) for i in range(57)]
        assert np.allclose(out.copy_to_host(), expected)
        out.publish()


@pytest.mark.parametrize("pool", POOLS)
def test_a_kernel_on_a_view_hits_its_elements_alone(pool: str, named: Any, kernels: None) -> None:
    @cuda.jit
    def add(a: Any, n: Any) -> None:
        i, j = cuda.grid(2)
        if i < a.shape[0] and j < a.shape[1]:
            cuda.atomic.add(a, (i, j), n)

    want = np.zeros((8, 6), np.int32)
    with filled(named(), want, pool) as a:
        for view in (lambda x: x, lambda x: x[2:6, ::2], lambda x: x.T):
            add[(1, 1), (8, 8)](view(a), 3)
            view(want)[...] += 3
        # Numba tries DLPack first; a reversed array must be passed by the CUDA Array Interface.
        with pytest.raises(BufferError, match="negative stride"):
            add[(1, 1), (8, 8)](a[::-1, ::-1], 3)
        add[(1, 1), (8, 8)](cuda.as_cuda_array(a[::-1, ::-1][1:]), 3)
        want[::-1, ::-1][1:] += 3
        cuda.synchronize()
        assert np.array_equal(a.copy_to_host(), want)


@pytest.mark.parametrize("pool", POOLS)
def test_a_kernel_on_records_hits_the_named_fields(pool: str, named: Any, kernels: None) -> None:
    @cuda.jit
    def move(points: Any) -> None:
        i = cuda.grid(1)
        if i < points.shape[0]:
            points[i].x += points[i].y

    want = np.zeros(5, POINT)
    want["x"], want["y"] = np.arange(5), 10
    with filled(named(), want, pool) as a:
        # Numba reads only the typestr of the interface, so the record type is given again.
        move[1, 32](cuda.as_cuda_array(a).view(POINT))
        cuda.synchronize()
        want["x"] += 10
        assert np.array_equal(a.copy_to_host(), want)
        record = a[2]
        assert (record.x, record["y"], list(record["tag"].copy_to_host())) == (12, 10, [0, 0])
        record.y = 7
        record["tag"] = [1, 2]
        assert a.copy_to_host()[2].item()[:2] == (12, 7) and a[2].item()[2].tolist() == [1, 2]
        a[3].copy_to_device(record)
        assert a[3] == record and a[1] != record


# ---- streams ----


@pytest.mark.parametrize("pool", POOLS)
def test_copies_and_kernels_on_a_stream_run_in_order(pool: str, named: Any, kernels: None) -> None:
    @cuda.jit
    def increment(a: Any) -> None:
        i = cuda.grid(1)
        if i < a.shape[0]:
            a[i] += 1

    n = 1 << 22
    source, out = gpushm.numba.pinned_array(n, "int32"), gpushm.numba.pinned_array(n, "int32")
    source[...] = 5
    stream = cuda.stream()
    with gpushm.create(named(), n, "int32", pool=pool, device=GPU) as a:
        with gpushm.numba.auto_synchronize(stream):
            for _ in range(3):
                a.copy_from_host(source.numpy(), stream=stream)
                increment[n // 256, 256, stream](a)
                a.copy_to_host(out.numpy(), stream=stream)
        assert (out.numpy() == 6).all()
        a.publish("shared")
    source.close()
    out.close()


# ---- host memory ----


def test_mapped_or_pinned_host_memory_works_with_numba(kernels: None) -> None:
    @cuda.jit
    def double(a: Any) -> None:
        i = cuda.grid(1)
        if i < a.shape[0]:
            a[i] *= 2

    host = np.arange(100, dtype=np.float64)
    with gpushm.numba.mapped(host) as there:
        double[1, 128](there)
        cuda.synchronize()
    assert np.array_equal(host, np.arange(100) * 2)
    with pytest.raises(AttributeError, match="ended"):
        _ = there.__cuda_array_interface__
    one, two = np.ones(10), np.ones((4, 4), np.float32)
    with gpushm.numba.mapped(one, two) as (a, b):
        double[1, 32](a)
        double[1, 32](cuda.as_cuda_array(b).ravel())
        cuda.synchronize()
    assert (one == 2).all() and (two == 2).all()
    stream = cuda.stream()
    with gpushm.numba.pinned(host, two), gpushm.numba.auto_synchronize(stream):
        there = cuda.to_device(host, stream=stream)
        there.copy_to_host(host, stream=stream)
    with pytest.raises(gpushm.errors.DriverError, match="ALREADY_REGISTERED"), gpushm.numba.pinned(host, host):
        pass
    with gpushm.numba.pinned(host):
        pass


def test_streams_are_numbas_and_its_arrays_are_taken(named: Any) -> None:
    made = gpushm.numba.stream()
    assert type(made) is type(cuda.stream()) is type(gpushm.numba.external_stream(int(made)))
    for name in ("default_stream", "legacy_default_stream", "per_thread_default_stream"):
        assert int(getattr(gpushm.numba, name)()) == int(getattr(cuda, name)())
    theirs = cuda.to_device(np.arange(5))
    view = gpushm.numba.to_device(theirs)
    assert isinstance(view, gpushm.numba.DeviceView) and view.copy_to_host(stream=made).tolist() == [0, 1, 2, 3, 4]
    view.split(4)[1].copy_to_device(np.array([9]), stream=made)
    assert theirs.copy_to_host().tolist() == [0, 1, 2, 3, 9]
    with gpushm.numba.device_array_like(theirs) as a:
        with made.auto_synchronize():
            a.copy_to_device(view, stream=made)
        assert a.copy_to_host().tolist() == [0, 1, 2, 3, 9]


def test_a_pinned_array_is_the_cpus_and_the_gpus_at_once(kernels: None) -> None:
    @cuda.jit
    def double(a: Any) -> None:
        i = cuda.grid(1)
        if i < a.shape[0]:
            a[i] *= 2

    with gpushm.numba.mapped_array(64, "int64") as a:
        a.numpy()[:] = np.arange(64)
        double[1, 64](a)
        cuda.synchronize()
        assert np.array_equal(a.numpy(), np.arange(64) * 2)
        with gpushm.numba.pinned_array_like(a[::2]) as b:
            assert (b.shape, b.dtype, b.kind) == ((32,), np.int64, "pinned")


# ---- what users had ----


@pytest.mark.parametrize("pool", POOLS)
def test_an_array_of_numbas_is_copied_in(pool: str, named: Any) -> None:
    want = np.arange(24, dtype=np.float32).reshape(4, 6)
    theirs = cuda.to_device(want)
    with to_device(theirs, named(), pool=pool, device=GPU) as a:
        assert np.array_equal(a.copy_to_host(), want)
        a.copy_to_device(cuda.to_device(want * 2))
        assert np.array_equal(a.copy_to_host(), want * 2)
        stream = cuda.stream()
        with gpushm.numba.auto_synchronize(stream):
            a.copy_to_device(cuda.to_device(want * 3, stream=stream), stream=stream)
        assert np.array_equal(a.copy_to_host(), want * 3)
        back = cuda.device_array_like(a)
        back.copy_to_device(cuda.as_cuda_array(a))
        assert np.array_equal(back.copy_to_host(), want * 3)
        for scalar in (np.float32(4), np.array((1, 2, [3, 4]), POINT)[()]):
            with to_device(scalar, "scalar", pool=pool) as s:
                assert s.shape == () and s[()] == scalar
        order_f = cuda.to_device(np.asfortranarray(want))
        with gpushm.create_like("like", order_f, pool=pool, device=GPU) as f:
            assert f.is_f_contiguous() and f.shape == (4, 6)
            f.copy_to_device(order_f)
            assert np.array_equal(f.copy_to_host(), want)
        a.publish()


class Foreign:
    """Has only the interface, as in numba-cuda's own tests."""

    def __init__(self, array: Any) -> None:
        self._array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._array.__cuda_array_interface__)


def child(handle: gpushm.types.Handle, results: Any) -> None:
    try:
        with handle.open(device=GPU) as a, handle.open(device=GPU) as again:
            view = cuda.as_cuda_array(again)
            results.put((a.copy_to_host(), view.copy_to_host()))
    except BaseException as e:
        results.put((e, None))


@pytest.mark.parametrize("foreign", [False, True], ids=["array", "foreign"])
@pytest.mark.parametrize("part", [None, slice(3, None), slice(3, 8), slice(None, 8)], ids=str)
def test_numbas_own_ipc_scenarios_work(part: Any, foreign: bool, named: Any) -> None:
    """One child for each, as in its tests: a handle of a slice, of our array or of an array that Numba made of it."""
    want = np.arange(10, dtype=np.intp)
    with filled(named(), want, POOLS[0]) as a:
        view = a if part is None else a[part]
        if foreign:
            view = gpushm.as_array(cuda.as_cuda_array(Foreign(view)))
        ctx = mp.get_context("spawn")
        results = ctx.Queue()
        process = ctx.Process(target=child, args=(view.handle(), results))
        process.start()
        one, two = results.get(timeout=60)
        process.join(60)
        expected = want if part is None else want[part]
        assert np.array_equal(one, expected) and np.array_equal(two, expected)
        assert process.exitcode == 0
        del view


def child_by_numba(handle: gpushm.numba.IpcArrayHandle, raw: gpushm.numba.IpcHandle, results: Any) -> None:
    """Reads the memory by Numba's driver functions, on each GPU."""
    try:
        found = []
        for device in range(len(cuda.gpus)):
            with cuda.gpus[device]:
                context = cuda.current_context()
                with handle as a:
                    found.append(a.copy_to_host())
                for how in (raw.open, raw.open_staged):
                    out = np.zeros(raw.size // 8, np.intp)
                    cuda.driver.device_to_host(out, how(context), size=raw.size)
                    raw.close()
                    found.append(out)
                a = raw.open_array(context, out.shape, out.dtype)
                found.append(cuda.as_cuda_array(a).copy_to_host())
                raw.close()
        results.put(found)
    except BaseException as e:
        results.put(e)


@pytest.mark.parametrize("part", [None, slice(3, 8)], ids=str)
@pytest.mark.parametrize("pool", POOLS)
def test_numbas_driver_takes_our_pointers(pool: str, part: Any) -> None:
    want = np.arange(10, dtype=np.intp)
    a = to_device(cuda.to_device(want), pool=pool, device=GPU)
    view = a if part is None else a[part]
    out = np.zeros(view.size, np.intp)
    cuda.driver.device_to_host(out, view.gpu_data, size=view.nbytes)
    expected = want if part is None else want[part]
    assert np.array_equal(out, expected)
    ctx = mp.get_context("spawn")
    results = ctx.Queue()
    process = ctx.Process(
        target=child_by_numba, args=(view.get_ipc_handle(), gpushm.numba.get_ipc_handle(view.gpu_data), results)
    )
    process.start()
    found = results.get(timeout=120)
    process.join(60)
    assert isinstance(found, list), found
    assert len(found) == 4 * len(cuda.gpus) and all(np.array_equal(f, expected) for f in found)


def test_cleanup_is_deferred_until_it_is_flushed(named: Any) -> None:
    with filled(named(), np.zeros(1 << 20, np.float32), POOLS[0]):
        with gpushm.numba.defer_cleanup(), gpushm.numba.defer_cleanup():
            for n in range(3):
                with gpushm.open("a", "r+", device=GPU) as a:
                    cuda.as_cuda_array(a)
                assert gpushm.numba.pending_cleanup()[0] == n + 1
                with pytest.raises(gpushm.errors.StateError):
                    gpushm.numba.flush_cleanup()
        assert gpushm.numba.pending_cleanup()[0] == 3
        gpushm.numba.flush_cleanup()
        assert gpushm.numba.pending_cleanup() == (0, 0)
