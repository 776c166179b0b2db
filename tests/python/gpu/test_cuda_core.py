# SPDX-License-Identifier: MIT
"""cuda.core: its sample with our memory resource, its kernels on our arrays. ../test_cuda_core.py has the scenarios."""

from __future__ import annotations

import multiprocessing as mp
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

from gpushm.cuda_core import DeviceMemoryResource, DeviceMemoryResourceOptions

POOLS = {name: kind for name, kind in MY_POOLS.items() if kind != "host"}
if not POOLS:
    pytest.skip("no GPU", allow_module_level=True)
NBYTES = 64
PATTERN = bytes((7 + 3 * i) & 0xFF for i in range(NBYTES))


@pytest.fixture(scope="module")
def device() -> Any:
    found = Device(GPU)
    found.set_current()
    return found


# ---- its sample of IPC memory pools, with CuPy ----


def of_the_sample(q_in: Any, q_out: Any, n: int) -> None:
    import cupy

    device = Device(GPU)
    device.set_current()
    buffer = q_in.get(timeout=60)
    arr = cupy.from_dlpack(buffer).view(dtype=cupy.float32)
    q_out.put((buffer.is_mapped, buffer.size, bool(cupy.allclose(arr, cupy.arange(n, dtype=cupy.float32) + 100))))
    arr[:] = cupy.arange(n, dtype=cupy.float32) * -1.0
    device.sync()
    buffer.close()
    q_out.put("done")


@pytest.mark.parametrize("pool", [name for name, kind in POOLS.items() if kind != "pinned"])
def test_cuda_cores_sample_runs_with_one_import_changed(pool: str, device: Any) -> None:
    cupy = pytest.importorskip("cupy")
    n, ctx = 1024, mp.get_context("spawn")
    options = DeviceMemoryResourceOptions(max_size=1 << 20, ipc_enabled=True)
    mr = DeviceMemoryResource(device, options=options, pool=pool)
    buffer = mr.allocate(4 * n, stream=device.default_stream)
    arr = cupy.from_dlpack(buffer).view(dtype=cupy.float32)
    arr[:] = cupy.arange(n, dtype=cupy.float32) + 100
    device.sync()
    to_child, from_child = ctx.Queue(), ctx.Queue()
    child = ctx.Process(target=of_the_sample, args=(to_child, from_child, n))
    child.start()
    to_child.put(buffer)
    assert from_child.get(timeout=60) == (True, 4 * n, True)
    assert from_child.get(timeout=60) == "done"
    child.join(60)
    assert child.exitcode == 0
    device.sync()
    assert np.array_equal(arr.get(), np.arange(n, dtype=np.float32) * -1)
    del arr
    buffer.close()
    mr.close()


# ---- errors, and another GPU ----


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
