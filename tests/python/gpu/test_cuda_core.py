# SPDX-License-Identifier: MIT
"""cuda.core: a memory resource in gpushm, its kernels on our arrays, and its own IPC scenarios with names."""

from __future__ import annotations

import gc
import multiprocessing as mp
import pickle
from typing import Any

import gpushm
import numpy as np
import pytest
from libraries import GPU, MY_POOLS

try:
    from cuda.core import Device
except ImportError:
    try:
        from cuda.core.experimental import Device
    except ImportError:
        pytest.skip("no cuda.core", allow_module_level=True)

POOLS = {name: kind for name, kind in MY_POOLS.items() if kind != "host"}
if not POOLS:
    pytest.skip("no GPU", allow_module_level=True)
NBYTES, NTASKS = 64, 20
PATTERN = bytes((7 + 3 * i) & 0xFF for i in range(NBYTES))
FLIPPED = PATTERN[::-1]


@pytest.fixture(scope="module")
def device() -> Any:
    found = Device(GPU)
    found.set_current()
    return found


@pytest.fixture(params=POOLS)
def resource(request: pytest.FixtureRequest, device: Any) -> Any:
    return gpushm.MemoryResource(request.param, device=GPU)


def allocate(resource: Any, device: Any, size: int = NBYTES) -> Any:
    return resource.allocate(size, stream=device.default_stream)


def copy_between(to: Any, source: Any, device: Any) -> None:
    to.copy_from(source, stream=device.default_stream)
    device.default_stream.sync()


# ---- a memory resource ----


def test_a_buffer_of_ours_works_as_one_of_cuda_core(resource: Any, device: Any) -> None:
    buffer, other = allocate(resource, device), allocate(resource, device)
    assert buffer.size == NBYTES and buffer.memory_resource is resource
    assert buffer.is_device_accessible and buffer.is_host_accessible == (POOLS[resource._options["pool"]] == "pinned")
    for one in (buffer, other):
        a = resource.array(one)
        assert (a.nbytes, a.state, a.device_ptr) == (NBYTES, "shared", int(one.handle))
        del a
    resource.array(buffer).copy_from_host(PATTERN)
    copy_between(other, buffer, device)
    assert resource.array(other).copy_to_host().tobytes() == PATTERN
    kind, number = buffer.__dlpack_device__()
    assert number == GPU and kind in (2, 3)
    if kind == 2:
        view = gpushm.as_array(buffer)
        assert view.copy_to_host().tobytes() == PATTERN and view.name.startswith("~")
        view.close()
    buffer.close(device.default_stream)
    other.close(device.default_stream)


def test_a_buffer_that_is_dropped_ends(resource: Any, device: Any) -> None:
    buffer = allocate(resource, device)
    name = resource.array(buffer).name
    gpushm.stat(name)
    del buffer
    gc.collect()
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.stat(name)
    assert resource._arrays == {}


def test_an_unknown_pool_or_too_large_a_buffer_is_refused(device: Any) -> None:
    with pytest.raises(gpushm.errors.NotFound, match="no-such"):
        gpushm.MemoryResource("no-such")
    resource = gpushm.MemoryResource(next(iter(POOLS)))
    with pytest.raises(MemoryError):
        allocate(resource, device, 1 << 50)
    again = pickle.loads(pickle.dumps(resource))
    assert again._options == resource._options


def test_opening_a_buffer_leaks_nothing(resource: Any, device: Any, grows: Any) -> None:
    def once() -> None:
        allocate(resource, device, 1 << 20).close(device.default_stream)

    assert grows(once) == []


# ---- its IPC scenarios ----


def flip(handle: gpushm.types.Handle) -> None:
    """Runs in a worker: checks one pattern and writes the other, by cuda.core's own copies."""
    device = Device(GPU)
    device.set_current()
    with handle as a:
        assert a.copy_to_host().tobytes() == PATTERN
        scratch = gpushm.MemoryResource(a.pool, prefix="~/scratch", device=GPU)
        source = scratch.allocate(NBYTES, stream=device.default_stream)
        scratch.array(source).copy_from_host(FLIPPED)
        buffer = gpushm.MemoryResource.buffer(a)
        copy_between(buffer, source, device)
        buffer.close()
        source.close()
        del buffer, source


def flip_array(a: gpushm.Array) -> None:
    flip(a.handle())
    a.close()


def test_a_worker_pool_writes_into_its_buffers(resource: Any, device: Any) -> None:
    """cuda.core's TestIpcWorkerPool and its two siblings: arrays, handles, and pickles made by hand."""
    buffers = [allocate(resource, device) for _ in range(NTASKS)]
    arrays = [resource.array(b) for b in buffers]
    with mp.get_context("spawn").Pool(2) as pool:
        for work, items in (
            (flip_array, arrays),
            (flip, [a.handle() for a in arrays]),
            (flip, [pickle.loads(pickle.dumps(a.handle())) for a in arrays]),
        ):
            for a in arrays:
                a.copy_from_host(PATTERN)
            pool.map(work, items, chunksize=3)
            assert all(a.copy_to_host().tobytes() == FLIPPED for a in arrays)
        pool.close()
        pool.join()
    del arrays, items, a
    for b in buffers:
        b.close(device.default_stream)


def fill_two(first: gpushm.types.Handle, second: gpushm.types.Handle, seed: int) -> None:
    with first as one, second as two, first as one_again:
        assert one.buffer.id == one_again.buffer.id != two.buffer.id
        (one if seed == 1 else two).copy_from_host(bytes([seed]) * NBYTES)


def test_two_processes_write_into_a_buffer_each(resource: Any, device: Any) -> None:
    """cuda.core's TestIPCMempoolMultiple, with one of the handles opened twice."""
    one, two = allocate(resource, device), allocate(resource, device)
    handles = [resource.array(b).handle() for b in (one, two)]
    ctx = mp.get_context("spawn")
    processes = [ctx.Process(target=fill_two, args=(*handles, seed)) for seed in (1, 2)]
    for p in processes:
        p.start()
    for p in processes:
        p.join(60)
        assert p.exitcode == 0
    assert resource.array(one).copy_to_host().tobytes() == b"\1" * NBYTES
    assert resource.array(two).copy_to_host().tobytes() == b"\2" * NBYTES
    one.close(device.default_stream)
    two.close(device.default_stream)


def error_of(handle: gpushm.types.Handle, access: str) -> str:
    try:
        handle.open(access)
    except gpushm.Error as e:
        return f"{type(e).__name__} {e.code}"
    return "none"


def test_each_error_of_a_worker_has_its_type(device: Any, workers: Any) -> None:
    with gpushm.create("errors", NBYTES, pool=next(iter(POOLS)), device=GPU) as a:
        handle = a.handle()
        assert workers.submit(error_of, handle, "r").result(60).startswith("NotPublished")
        a.publish("sealed")
        assert workers.submit(error_of, handle, "r+").result(60).startswith("ReadOnly")
        gpushm.unlink("errors")
        assert workers.submit(error_of, handle, "r").result(60) == "NotFound NOT_FOUND"
    with gpushm.create("errors", NBYTES, pool=next(iter(POOLS)), device=GPU) as a:
        a.publish()
        beyond = gpushm.numba.IpcArrayHandle(bytes(a.handle()), {"shape": NBYTES, "dtype": "uint8", "offset": 1})
        assert workers.submit(error_of, beyond, "r").result(60).startswith("LayoutError")
    gpushm.unlink("errors")


def test_a_second_gpu_reads_the_same_bytes(workers: Any) -> None:
    peers = [p for p in gpushm.pools() if p.kind == "vmm" and p.device not in (GPU, None)]
    if not peers:
        pytest.skip("one GPU")
    with gpushm.create("peer", NBYTES, pool=next(iter(POOLS)), device=GPU) as a:
        a.copy_from_host(PATTERN)
        a.publish()
        with gpushm.open("peer", device=peers[0].device) as b:
            assert b.copy_to_host().tobytes() == PATTERN
    gpushm.unlink("peer")


# ---- its kernels ----

CODE = r"""
extern "C" __global__ void scale(float *a, float factor, size_t n) {
    __shared__ float part[64];
    size_t i = blockIdx.x * blockDim.x + threadIdx.x;
    part[threadIdx.x] = i < n ? a[i] : 0;
    __syncthreads();
    if (i < n) a[i] = part[threadIdx.x] * factor;
}
"""


@pytest.mark.parametrize("pool", POOLS)
def test_a_kernel_of_cuda_core_hits_the_arrays_elements(pool: str, device: Any, named: Any, kernels: None) -> None:
    try:
        from cuda.core import LaunchConfig, Program, ProgramOptions, launch
    except ImportError:
        from cuda.core.experimental import LaunchConfig, Program, ProgramOptions, launch

    arch = "".join(str(n) for n in device.compute_capability)
    try:
        program = Program(CODE, code_type="c++", options=ProgramOptions(arch=f"sm_{arch}"))
        kernel = program.compile("cubin").get_kernel("scale")
    except Exception as e:
        pytest.skip(f"no NVRTC: {e}")
    want = np.arange(100, dtype=np.float32)
    with gpushm.create(named(), 100, "float32", pool=pool, device=GPU) as a:
        stream = device.create_stream()
        with gpushm.numba.auto_synchronize(stream):
            a.copy_from_host(want, stream=stream)
            launch(stream, LaunchConfig(grid=2, block=64), kernel, a.device_ptr, np.float32(3), np.uint64(100))
        assert np.array_equal(a.copy_to_host(), want * 3)
        a.publish()
