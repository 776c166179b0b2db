# SPDX-License-Identifier: MIT
"""Each library as the tests use it: take() an Array without a copy, get its bytes, write into it, make() an array.

REFUSES lists what a library cannot take by its own rules: tests expect an exception for these.

A library works on the GPU $GPUSHM_GPU, 0 by default, and takes memory of that GPU, and pinned memory that is mapped for
it. test_two_gpus.py has memory of another GPU.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import gpushm
import numpy as np

GPU = int(os.environ.get("GPUSHM_GPU", "0"))
# By name: the kinds of all pools, and of those that the library can use.
POOLS = {p.name: p.kind for p in gpushm.pools() if not p.failed}
MY_POOLS = {p.name: p.kind for p in gpushm.pools() if not p.failed and p.device in (None, GPU)}


def gpu_for(pool: str) -> int | None:
    """The GPU for which a buffer of that pool is to be mapped; memory of a host pool is for none."""
    return None if POOLS[pool] == "host" else GPU


# Numba's typing uses aliases that NumPy 2.5 has removed.
for _old, _new in (("row_stack", "vstack"), ("in1d", "isin"), ("trapz", "trapezoid")):
    if not hasattr(np, _old) and hasattr(np, _new):
        setattr(np, _old, getattr(np, _new))

NUMBERS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
NUMBERS += ["float16", "float32", "float64", "complex64", "complex128"]
SLOW_CYCLES = 450_000_000  # a quarter of a second
MACHINE = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn_x2"]


class Numpy:
    """By DLPack, or the buffer protocol where DLPack cannot describe the array. Host and pinned pools."""

    kinds = ("host", "pinned")
    dtypes = NUMBERS
    REFUSES: tuple[str, ...] = ()

    def take(self, array: Any) -> Any:
        backwards = any(s < 0 for s in array.strides)
        return array.numpy() if backwards or array.readonly or array.dtype_name == "bool" else np.from_dlpack(array)

    def bytes_of(self, t: Any) -> bytes:
        return bytes(np.ascontiguousarray(t).tobytes())

    def write(self, t: Any, value: np.ndarray) -> None:
        t[...] = value

    def make(self, value: np.ndarray) -> Any:
        return value.copy()

    def synchronize(self) -> None:
        pass


class OnTheHost:
    """A pinned array, for libraries that do not know this device."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **words: Any) -> Any:
        return self.array.__dlpack__(**words | {"dl_device": (1, 0)})


class Torch:
    """By DLPack; pinned memory, a device that torch does not know, as memory of the CPU. Has no negative strides."""

    kinds = ("host", "pinned", "vmm", "mempool")
    REFUSES = ("reversed",)

    def __init__(self) -> None:
        import torch

        self.torch = torch
        if torch.cuda.is_available():
            torch.cuda.set_device(GPU)
        self.dtypes = [d for d in [*NUMBERS, "bfloat16", "float8_e4m3fn", "float8_e5m2"] if self._knows(d)]

    def _knows(self, dtype: str) -> bool:
        """Some versions have no float8 over DLPack, and some no larger unsigned integers."""
        try:
            self.torch.from_dlpack(self.torch.zeros(2, dtype=getattr(self.torch, dtype)))
        except (AttributeError, RuntimeError, BufferError, NotImplementedError):
            return False
        return True

    def take(self, array: Any) -> Any:
        if array.kind == "pinned":
            return self.torch.from_dlpack(OnTheHost(array))
        return self.torch.from_dlpack(array)

    def bytes_of(self, t: Any) -> bytes:
        if t.numel() == 0:
            return b""
        return bytes(t.contiguous().cpu().reshape(-1).view(self.torch.uint8).numpy().tobytes())

    def write(self, t: Any, value: np.ndarray) -> None:
        t.copy_(self._like(value, t.dtype))

    def _like(self, value: np.ndarray, dtype: Any) -> Any:
        if value.size == 0:
            return self.torch.empty(value.shape, dtype=dtype)
        return self.torch.frombuffer(bytearray(value.tobytes()), dtype=dtype).reshape(value.shape)

    def make(self, value: np.ndarray) -> Any:
        return self._like(value, getattr(self.torch, value.dtype.name)).cuda()

    def synchronize(self) -> None:
        self.torch.cuda.synchronize()

    @contextmanager
    def slow_write(self, t: Any, value: float) -> Iterator[None]:
        """A section whose current stream waits for a quarter of a second and then writes to all of t."""
        with self.torch.cuda.stream(self.torch.cuda.Stream()):
            self.torch.cuda._sleep(SLOW_CYCLES)
            t.fill_(value)
            del t
            yield


class Cupy:
    """By DLPack; pinned memory and negative strides, which CuPy cannot take by DLPack, by the CUDA Array Interface."""

    kinds = ("pinned", "vmm", "mempool")
    dtypes = NUMBERS
    REFUSES: tuple[str, ...] = ()

    def __init__(self) -> None:
        import cupy

        self.cupy = cupy
        cupy.cuda.Device(GPU).use()

    def take(self, array: Any) -> Any:
        if array.kind == "pinned" or any(s < 0 for s in array.strides):
            return self.cupy.asarray(array)
        return self.cupy.from_dlpack(array)

    def bytes_of(self, t: Any) -> bytes:
        return bytes(self.cupy.asnumpy(t).tobytes())

    def write(self, t: Any, value: np.ndarray) -> None:
        t[...] = self.cupy.asarray(value)

    def make(self, value: np.ndarray) -> Any:
        return self.cupy.asarray(value)

    def synchronize(self) -> None:
        self.cupy.cuda.Device().synchronize()

    @contextmanager
    def slow_write(self, t: Any, value: float) -> Iterator[None]:
        """As Torch's."""
        wait = self.cupy.RawKernel(
            'extern "C" __global__ void wait(long long n) { long long t = clock64(); while (clock64() - t < n); }',
            "wait",
        )
        with self.cupy.cuda.Stream(non_blocking=True):
            wait((1,), (1,), (np.int64(SLOW_CYCLES),))
            t[...] = value
            del t
            yield


class CupyInterface(Cupy):
    """CuPy by the CUDA Array Interface, in all kinds."""

    def take(self, array: Any) -> Any:
        return self.cupy.asarray(array)


class Numba:
    """By the CUDA Array Interface. Kernels read and write, because Numba's copies do not allow negative strides."""

    kinds = ("pinned", "vmm", "mempool")
    dtypes = [d for d in NUMBERS if d != "float16"]
    REFUSES: tuple[str, ...] = ()

    def __init__(self) -> None:
        from numba import cuda

        self.cuda = cuda
        cuda.select_device(GPU)

        @cuda.jit
        def copy(source: Any, to: Any) -> None:
            i = cuda.grid(1)
            if i < source.shape[0]:
                for j in range(source.shape[1]):
                    to[i, j] = source[i, j]

        self.copy = copy
        try:
            copy[1, 32](cuda.to_device(np.ones((2, 2))), cuda.device_array((2, 2)))
            cuda.synchronize()
        except Exception as e:
            raise ImportError(f"Numba can't make kernels here: {type(e).__name__}: {str(e)[:200]}") from None

    def take(self, array: Any) -> Any:
        return self.cuda.as_cuda_array(array)

    def bytes_of(self, t: Any) -> bytes:
        if t.ndim != 2 or t.size == 0:
            return bytes(t.copy_to_host().tobytes())
        out = self.cuda.device_array(t.shape, t.dtype)
        self.copy[1, 32](t, out)
        return bytes(out.copy_to_host().tobytes())

    def write(self, t: Any, value: np.ndarray) -> None:
        source = self.cuda.to_device(np.ascontiguousarray(value))
        if t.ndim == 2 and t.size:
            self.copy[1, 32](source, t)
        else:
            t.copy_to_device(source)

    def make(self, value: np.ndarray) -> Any:
        return self.cuda.to_device(value)

    def synchronize(self) -> None:
        self.cuda.synchronize()

    @contextmanager
    def slow_write(self, t: Any, value: float) -> Iterator[None]:
        """As Torch's, on a stream of Numba's, which has no current stream."""
        cuda = self.cuda

        @cuda.jit
        def write(to: Any, value: float) -> None:
            for _ in range(500):
                cuda.nanosleep(500_000)
            for i in range(to.shape[0]):
                for j in range(to.shape[1]):
                    to[i, j] = value

        write[1, 1, cuda.stream()](t, value)
        del t
        yield


class Jax:
    """By DLPack, on a GPU; whole arrays, also transposed. A jax.Array is never written."""

    kinds = ("vmm", "mempool")
    dtypes = ["int8", "int16", "int32", "uint8", "uint16", "uint32", "float16", "float32", "complex64", "bfloat16"]
    REFUSES = ("sliced", "stepped", "reversed")

    def __init__(self) -> None:
        import jax

        self.jax = jax
        if jax.default_backend() != "gpu":
            raise ImportError("JAX is here without its GPU part")
        jax.config.update("jax_default_device", jax.devices()[GPU])

    def take(self, array: Any) -> Any:
        return self.jax.dlpack.from_dlpack(array)

    def bytes_of(self, t: Any) -> bytes:
        return bytes(np.ascontiguousarray(np.asarray(t)).tobytes())

    write = None

    def make(self, value: np.ndarray) -> Any:
        return self.jax.device_put(value)

    def synchronize(self) -> None:
        pass


class CudaCore:
    """cuda.core's StridedMemoryView, by either protocol: an address and a layout, for its kernels."""

    kinds = ("pinned", "vmm", "mempool")
    dtypes = NUMBERS
    REFUSES: tuple[str, ...] = ()

    def __init__(self) -> None:
        try:
            from cuda.core import Device
            from cuda.core.utils import StridedMemoryView
        except ImportError:
            from cuda.core.experimental import Device
            from cuda.core.experimental.utils import StridedMemoryView

        self.device = Device(GPU)
        self.device.set_current()
        self.view = StridedMemoryView

    def take(self, array: Any) -> Any:
        if not hasattr(self.view, "from_any_interface"):
            return self.view(array, -1)
        if any(s < 0 for s in array.strides):
            return self.view.from_cuda_array_interface(array, stream_ptr=-1)
        return self.view.from_any_interface(array, stream_ptr=-1)

    def bytes_of(self, t: Any) -> bytes:
        import gpushm._dtype as dtype
        import gpushm._foreign as foreign

        size = t.dtype.itemsize
        strides = tuple(s * size for s in t.strides) if t.strides is not None else None
        memory = foreign.Memory(t, t.ptr, tuple(t.shape), strides, dtype.encode(t.dtype), on_gpu=True)
        return bytes(foreign.to_host(memory).tobytes())

    write = None
    make = None

    def synchronize(self) -> None:
        self.device.sync()


LIBRARIES = {
    "numpy": Numpy,
    "torch": Torch,
    "cupy": Cupy,
    "cupy-cai": CupyInterface,
    "numba": Numba,
    "jax": Jax,
    "cuda-core": CudaCore,
}
