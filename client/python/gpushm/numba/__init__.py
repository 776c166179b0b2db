# SPDX-License-Identifier: MIT
"""numba.cuda's memory, streams and IPC with its names, signatures and defaults, in memory of pools:

    from gpushm import numba as cuda

Its arrays are gpushm.Arrays: anonymous until publish_as(name), by which others open them, and gone with the last
process that has them open. They are in the pool $GPUSHM_NUMBA_POOL, else in the first one of the GPU that the thread
works on, else in the daemon's default pool. Closed ones wait as Numba's do: at most 10, and 0.2 of a GPU's memory, or
what $NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT and $NUMBA_CUDA_MAX_PENDING_DEALLOCS_RATIO say. NumPy is needed to copy.

For programs that use Numba, this module has a memory manager (its EMM plugin), which puts Numba's own arrays into a
pool of the daemon:

    NUMBA_CUDA_MEMORY_MANAGER=gpushm.numba python program.py     # the program is not changed; or, before it uses CUDA:

    cuda.set_memory_manager(gpushm.numba.MemoryManager)

Its IPC handles open in every process of this user, a child or not, and memory that another process has open outlives
its maker.

    array = numba.cuda.to_device(numpy.arange(10))
    gpushm.numba.publish(array, "ten")                           # here
    ten = numba.cuda.as_cuda_array(gpushm.open("ten"))           # any other process

Numba is imported when one of its streams, the manager or publish() is first asked for.
"""

from __future__ import annotations

import errno
import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Any

from .. import _core, _driver, _foreign
from .._core import flush_cleanup, pending_cleanup
from .._driver import auto_synchronize, defer_cleanup
from .._foreign import is_cuda_array
from .._ipc import IpcArrayHandle, IpcHandle, MemoryPointer, get_ipc_handle, open_ipc_array
from ._streams import Stream, default_stream, external_stream, legacy_default_stream, per_thread_default_stream, stream
from ._views import DeviceView, Mapped, mapped, pinned

try:
    from numpy import float64
except ImportError:
    float64 = "float64"  # type: ignore[assignment,misc]

if TYPE_CHECKING:
    from .._typing import Array, CudaStream, DTypeLike, HasShapeAndDType, Order, Shape, Source
    from ._manager import MemoryManager as MemoryManager
    from ._manager import publish as publish

    _numba_memory_manager = MemoryManager

__all__ = [
    "DeviceView", "IpcArrayHandle", "IpcHandle", "Mapped", "MemoryPointer", "Stream", "as_cuda_array",
    "auto_synchronize", "default_stream", "defer_cleanup", "device_array", "device_array_like", "external_stream",
    "flush_cleanup", "get_ipc_handle", "is_cuda_array", "legacy_default_stream", "mapped", "mapped_array",
    "mapped_array_like", "open_ipc_array", "pending_cleanup", "per_thread_default_stream", "pinned", "pinned_array",
    "pinned_array_like", "set_cleanup_limits", "stream", "synchronize", "to_device",
]

# ---- arrays ----


def to_device(obj: Source, stream: CudaStream = 0, copy: bool = True, to: Array | None = None) -> Any:
    """Copies an array, a scalar or a record to a GPU: into `to`, or into a new Array, which it returns.

    obj: what numpy.asarray() takes; of an array on a GPU as_cuda_array() is returned, without a copy. stream: a CUDA
    stream to queue the copy on; `obj` must live until that has done the copy; 0: done on return. copy: False leaves the
    elements as they are.
    """
    if to is None:
        # Arrays in pinned memory are the host's.
        if obj.kind in _core._ON_GPU if isinstance(obj, _core.Array) else is_cuda_array(obj):
            return as_cuda_array(obj)
        _limit_cleanup()
        to = _foreign.create_like(None, obj, pool=_pool(*_core._ON_GPU))
    if copy:
        to.copy_to_device(obj, stream)
    return to


def device_array(
    shape: Shape, dtype: DTypeLike = float64, strides: Shape | None = None, order: Order = "C", stream: CudaStream = 0
) -> Array:
    """A new Array on a GPU, with arbitrary elements. strides: in bytes, instead of order."""
    return _made(_pool(*_core._ON_GPU), shape, dtype, strides, order)


def device_array_like(ary: HasShapeAndDType, stream: CudaStream = 0) -> Array:
    """device_array() with the shape, dtype and order of another array, of any library."""
    return device_array(ary.shape, ary.dtype, None, _foreign.order_of(ary), stream)


def pinned_array(shape: Shape, dtype: DTypeLike = float64, strides: Shape | None = None, order: Order = "C") -> Array:
    """An Array in pinned host memory, which CPU and GPU use at the same time, in the first pinned pool.

    Its numpy() is the ndarray; __cuda_array_interface__ and DLPack are the GPU's view of the same bytes. NotFound: the
    daemon has no pinned pool, because it has no GPU.
    """
    pool = _pool("pinned")
    if pool is None:
        raise _core.NotFound(errno.ENOENT, "the daemon has no pinned pool: it has no GPU")
    return _made(pool, shape, dtype, strides, order)


def pinned_array_like(ary: HasShapeAndDType) -> Array:
    """pinned_array() with the shape, dtype and order of another array."""
    return pinned_array(ary.shape, ary.dtype, None, _foreign.order_of(ary))


def mapped_array(
    shape: Shape, dtype: DTypeLike = float64, strides: Shape | None = None, order: Order = "C", stream: CudaStream = 0,
    portable: bool = False, wc: bool = False,
) -> Array:
    """pinned_array(), whose memory each stream and each GPU reaches. wc: is taken; the memory is cached."""
    return pinned_array(shape, dtype, strides, order)


def mapped_array_like(ary: HasShapeAndDType, stream: CudaStream = 0, portable: bool = False, wc: bool = False) -> Array:
    """mapped_array() with the shape, dtype and order of another array."""
    return pinned_array_like(ary)


def as_cuda_array(obj: Any, sync: bool = True) -> Any:
    """An array over the memory of a GPU's array, of any library, without a copy; it keeps obj.

    An Array where the memory is from a buffer that is open here, which other processes can open, too; else a
    DeviceView. sync: wait for the stream that obj names, unless $NUMBA_CUDA_ARRAY_INTERFACE_SYNC is 0. TypeError: obj
    has neither the CUDA Array Interface nor DLPack for a GPU.
    """
    if isinstance(obj, _core.Array | DeviceView):
        return obj
    if not is_cuda_array(obj):
        raise TypeError("*obj* doesn't implement the cuda array interface.")
    memory = _foreign.memory_of(obj)
    if sync and memory.stream is not None and os.environ.get("NUMBA_CUDA_ARRAY_INTERFACE_SYNC", "1") != "0":
        _driver.synchronize(memory.stream, memory.device)
    try:
        return _foreign.as_array(memory)
    except TypeError:
        return DeviceView(memory)


def synchronize() -> None:
    """Waits for all work of the thread's GPU."""
    _driver.synchronize_all()


def set_cleanup_limits(max_count: int, max_ratio: float) -> None:
    """Limits the closes that wait outside of defer_cleanup(): their number, on all GPUs together, and their part of a
    GPU's memory, 0 to 1. Numba's are 10 and 0.2; without a call of this module they are as gpushm(3) says.
    """
    _limit_cleanup()
    _core.set_cleanup_limits(max_count, max_ratio)


# ---- helpers ----


@cache
def _limit_cleanup() -> None:
    """Numba's limits for closes that wait, from the first array that is made here."""
    env, name = os.environ, "NUMBA_CUDA_MAX_PENDING_DEALLOCS"
    _core.set_cleanup_limits(int(env.get(f"{name}_COUNT", 10)), float(env.get(f"{name}_RATIO", 0.2)))


def _pool(*kinds: str) -> str | None:
    """The name of a pool of those kinds, on the thread's current GPU if that has one. None: there is no such pool."""
    if kinds == _core._ON_GPU and os.environ.get("GPUSHM_NUMBA_POOL"):
        return os.environ["GPUSHM_NUMBA_POOL"]
    here = _core._current_device() or 0
    pools = [p for p in _core.pools() if p.kind in kinds and p.allowed and not p.failed]
    return min(pools, key=lambda p: p.device != here).name if pools else None


def _made(pool: str | None, shape: Shape, dtype: DTypeLike, strides: Shape | None, order: Order) -> Array:
    _limit_cleanup()
    return _core.create(None, shape, dtype, pool=pool, strides=strides, order=order)


def __getattr__(name: str) -> Any:
    """Numba's memory manager, which needs Numba."""
    if name in ("_numba_memory_manager", "MemoryManager", "publish"):
        return getattr(import_module("gpushm.numba._manager"), name.replace("_numba_memory_manager", "MemoryManager"))
    raise AttributeError(f"module 'gpushm.numba' has no attribute {name!r}")
