# SPDX-License-Identifier: MIT
"""Numba's memory manager over gpushm: memory from arenas, IPC handles that name a buffer, publish()."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
import time
import weakref
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from .. import _core, _driver, _foreign, _handle, _ipc
from ._arenas import LARGE, Arenas, Block, is_open_elsewhere

if TYPE_CHECKING:
    from .._typing import Array, Buffer

try:
    from numba.cuda.cudadrv import devices as _devices
    from numba.cuda.cudadrv import driver as _numba

    _open_plain, _plain_handles = _numba.Context.open_ipc_handle, _numba.GetIpcHandleMixin.get_ipc_handle
    _OUT_OF_MEMORY = _numba.binding.CUresult.CUDA_ERROR_OUT_OF_MEMORY
except (ImportError, AttributeError) as e:
    raise ImportError(
        "gpushm.numba.MemoryManager needs the package numba-cuda, 0.20 or later, and not the CUDA target that Numba "
        f"itself brings (pip install 'numba-cuda[cu13]'): {e}"
    ) from e

# What is in a CUipcMemHandle: a mark, the buffer's id, where the memory begins in it, its name.
_FIELDS = struct.Struct("<8sQQ40s")
_MARK = b"gpushm\0\1"


class IpcHandle(_numba.IpcHandle):  # type: ignore[misc]
    """Numba's IpcHandle with a handle of ours, which also brings this module to the process that unpickles it."""

    _impl: Any

    def open_staged(self, context: Any) -> Any:
        """Copies by way of the host. Numba leaves that to the driver's copy from GPU to GPU, which refuses memory that
        is not mapped for both.
        """
        self._sentry_source_info()
        if self._impl is not None:
            raise ValueError("IpcHandle is already opened")
        source, host = _numba._CudaIpcImpl(self), bytearray(self.size)
        with _devices.gpus[int(_numba.Device.from_identity(self.source_info).id)]:
            memory = source.open(_devices.get_context())
            try:
                _numba.device_to_host(host, memory, self.size)
            finally:
                source.close()
        made = context.memalloc(self.size)
        _numba.host_to_device(made, host, self.size)
        self._impl = _numba._StagedIpcImpl(self, self.source_info)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (None, self.handle, self.size, self.source_info, self.offset)


class MemoryManager(_numba.HostOnlyCUDAMemoryManager):  # type: ignore[misc]
    """Memory of Numba's arrays in a pool of the daemon; pinned and mapped memory of the host is Numba's own.

    The pool: that of using(), else $GPUSHM_NUMBA_POOL, else the first on the context's GPU that this user may use.
    Small arrays share arenas, arrays of 4 MiB and more are buffers of their own. What Numba has freed waits for reuse,
    up to a 16th of the pool; memory that is short is looked for there first. repr() shows what is taken.
    """

    interface_version: ClassVar[int] = 1
    pool: ClassVar[str | None] = None

    def __init__(self, *arguments: Any, **words: Any) -> None:
        """Called by Numba, with a context."""
        super().__init__(*arguments, **words)
        self._arenas: Arenas | None = None
        self._lock = threading.Lock()
        # Numba's queue is not made for threads. The garbage collector may come in between, in the same thread.
        one_at_a_time = threading.RLock()
        for name in ("add_item", "clear"):
            setattr(self.deallocations, name, _locked(one_at_a_time, getattr(self.deallocations, name)))

    @classmethod
    def using(cls, pool: str) -> type[MemoryManager]:
        """The manager over that pool: cuda.set_memory_manager(MemoryManager.using("gpu0"))."""
        return type(cls.__name__, (cls,), {"pool": pool, "__doc__": cls.__doc__})

    def initialize(self) -> None:
        """Called by Numba before the context is used."""
        if not self.deallocations.memory_capacity:
            self.deallocations.memory_capacity = self.get_memory_info().total

    def memalloc(self, size: int) -> Any:
        """Called by Numba. CudaAPIError with the code CUDA_ERROR_OUT_OF_MEMORY: the pool is full, or a limit is
        reached; the text says which, and who holds the memory.
        """
        with self._lock:
            block = self._allocate(size)
        address = block.address
        self.allocations[address] = block
        allocations, deallocations, free = self.allocations, self.deallocations, self._free

        def finalizer() -> None:
            allocations.pop(address, None)
            deallocations.add_item(free, block, size)

        return _numba.MemoryPointer(self.context, ctypes.c_void_p(address), size, finalizer=finalizer)

    def _allocate(self, size: int) -> Block:
        arenas = self._arenas
        if arenas is None:
            device = self.context.device.id
            chosen = self.pool or os.environ.get("GPUSHM_NUMBA_POOL")
            pool = _foreign.pool_for(_core._ON_GPU, chosen, device=device).name
            # The garbage collector's thread may have no context.
            arenas = self._arenas = Arenas(pool, lambda: _driver.synchronize_all(device))
        block = arenas.take(size)
        if block is None and size >= LARGE // 4:
            # To wait for the GPU costs less than a new buffer.
            self.deallocations.clear()
            block = arenas.take(size)
        try:
            return block or arenas.make(size)
        except (MemoryError, _core.LimitReached):
            self.deallocations.clear()
            arenas.settle(kept=0)
        try:
            return arenas.take(size) or arenas.make(size, scarce=True)
        except (MemoryError, _core.LimitReached) as e:
            raise _numba.CudaAPIError(_OUT_OF_MEMORY, str(e)) from e

    def _free(self, block: Block) -> None:
        """Called by Numba's queue, also in a thread that is in memalloc(): so it waits for no lock."""
        arenas = self._arenas
        if arenas is None:
            return
        arenas.give_back(block)
        if block.arena.large and self._lock.acquire(blocking=False):
            try:
                arenas.settle()
            finally:
                self._lock.release()

    def get_ipc_handle(self, memory: Any) -> Any:
        """Called by Numba. The handle opens in every process of this user that has imported this class or was sent the
        handle, as long as the memory lives.
        """
        block = self._block_of(int(memory.handle))
        if block is None:
            return _plain_handles(self, memory)
        buffer = block.arena.buffer
        _handle._publish_once(buffer)
        block.lent = True
        name = buffer.name.encode()
        if len(name) > 40:
            raise ValueError(f"a handle of CUDA has no place for the name {buffer.name!r}: open the array by its name")
        handle = _ipc.MemHandle(_FIELDS.pack(_MARK, buffer.id, block.start, name))
        offset = int(memory.handle) - block.address
        return IpcHandle(memory, handle, memory.size, self.context.device.get_device_identity(), offset)

    def _block_of(self, address: int) -> Block | None:
        found: Block | None = self.allocations.get(address)
        if found is None:
            below = max((a for a, b in list(self.allocations.items()) if a <= address and type(b) is Block), default=0)
            found = self.allocations.get(below)
        return found if type(found) is Block and address < found.address + found.arena.size else None

    def publish(self, array: Any, name: str, mode: int = 0o600, replace: bool = False) -> Array:
        """gpushm.numba.publish()."""
        block = self._block_of(int(array.gpu_data.handle))
        if block is None:
            raise ValueError("the array's memory is not gpushm's: copy it into gpushm.create_like(name, array)")
        at = int(array.gpu_data.handle) - block.arena.address
        view = block.arena.buffer.array(array.shape, array.dtype, strides=array.strides, offset=at)
        source = array if array.dtype.names is None else None  # Numba has no interface that tells of a record's fields.
        named = _foreign.publish_view(view, name, mode, replace, block.arena.large, source)
        block.named = named
        return named

    def get_memory_info(self) -> Any:
        """Free and total bytes of the GPU."""
        return _numba.MemoryInfo(*map(int, _numba.driver.cuMemGetInfo()))

    def reset(self) -> None:
        """Called by Numba at the end of the context. Gives all memory back."""
        super().reset()
        self._arenas = None

    def __repr__(self) -> str:
        pool = self._arenas.pool if self._arenas else "not known yet"
        return f"<gpushm.numba.MemoryManager, pool {pool}: {len(self.allocations)} arrays; {self._arenas}>"


def _locked(lock: threading.RLock, call: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call)
    def run(*arguments: Any) -> Any:
        with lock:
            return call(*arguments)

    return run


def publish(array: Any, name: str, *, mode: int = 0o600, replace: bool = False) -> Array:
    """Gives an array of Numba's a name: gpushm.open(name) has its shape and dtype, and cuda.as_cuda_array() of that is
    an array of Numba's in any process that the mode allows.

    It is the array's own memory, and nothing is copied, if the array is of 4 MiB or more, has no IPC handle and no
    name yet, and the mode is 0o600. Else it is a copy, because small arrays share memory with others; write to the
    Array that is returned, which is what others open. The name lasts as long as the array, that Array, or another
    process's use of it. replace: another buffer of the name loses it. Errors: ValueError (memory that is not this
    manager's), Exists, and as gpushm.create().
    """
    manager = array.gpu_data.context.memory_manager
    if not isinstance(manager, MemoryManager):
        raise ValueError(f"Numba's memory manager is {manager!r} and not gpushm's: set NUMBA_CUDA_MEMORY_MANAGER")
    return manager.publish(array, name, mode, replace)


# ---- opening ----

# What is open here: by the address that Numba has, and by name, id and GPU, so that an arena is attached once.
_opened: dict[int, list[Buffer]] = {}
_attached: WeakValueDictionary[tuple[str, int, int], Buffer] = WeakValueDictionary()
_opening = threading.RLock()
# The arena that was closed last, and when: its next handle opens at once, with no request and no call of the driver.
_idle: list[tuple[Buffer, float]] = []
_IDLE = 1.0  # seconds for which it stays attached
_IDLE_MAX = 16 << 20  # bytes of it


def _open_ipc_handle(context: Any, handle: Any, size: int) -> Any:
    """Context.open_ipc_handle(), which also knows handles of MemoryManager."""
    mark, id, start, name = _FIELDS.unpack(bytes(byte & 255 for byte in handle.reserved))
    if mark != _MARK:
        return _open_plain(context, handle, size)
    key = name.rstrip(b"\0").decode(), id, context.device.id
    with _opening:
        buffer: Buffer | None = _attached.get(key)
        if buffer is None or buffer.closed:
            opened = _core.open_many(key[0], "r+", 0, device="current")
            buffer = _attached[key] = _handle.check_id(opened, key[0], id)
        if start + size > buffer.nbytes:
            raise ValueError(f"{size} bytes from {start} are not within the {buffer.nbytes} bytes of {buffer.name!r}")
        address = (buffer.device_ptr or 0) + start
        _opened.setdefault(address, []).append(buffer)
        plain = _numba.driver.cuIpcCloseMemHandle
        if not hasattr(plain, "of_gpushm"):
            _numba.driver.cuIpcCloseMemHandle = _closing(plain)
    return _numba.MemoryPointer(weakref.proxy(context), ctypes.c_void_p(address), size)


def _closing(plain: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Numba's call of cuIpcCloseMemHandle(), which also knows what _open_ipc_handle() has opened."""

    def close(address: Any) -> Any:
        with _opening:
            buffers = _opened.get(int(address))
            if buffers is None:
                return plain(address)
            buffer = buffers.pop()
            if not buffers:
                del _opened[int(address)]
            # What nobody else has is freed at once.
            if buffer.nbytes <= _IDLE_MAX and is_open_elsewhere(buffer):
                timed = bool(_idle)
                _idle[:] = [(buffer, time.monotonic() + _IDLE)]
                if not timed:
                    _end_idle_in(_IDLE)
        return None

    close.of_gpushm = True  # type: ignore[attr-defined]
    return close


def _end_idle_in(seconds: float) -> None:
    timer = threading.Timer(seconds, _end_idle)
    timer.daemon = True
    timer.start()


def _end_idle() -> None:
    with _opening:
        left = _idle[0][1] - time.monotonic()
        if left <= 0:
            _idle.clear()
        else:
            _end_idle_in(left)


_numba.Context.open_ipc_handle = _open_ipc_handle
