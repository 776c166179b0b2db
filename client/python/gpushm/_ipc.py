# SPDX-License-Identifier: MIT
"""Handles with the names and rules of Numba's CUDA IPC, for code that was written for it.

get_ipc_handle() of an Array makes an IpcArrayHandle, and gpushm.numba.get_ipc_handle() an IpcHandle of raw memory.
Both keep the memory as long as they live in the process that made them. They can be pickled; a copy keeps nothing. A
handle is opened once at a time, and close() ends what it has opened. Array.handle() has none of these limits.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from . import _core, _driver, _foreign, _handle

if TYPE_CHECKING:
    from ._typing import Access, Array, Device, DTypeLike, Shape, SupportsCudaArrayInterface, SupportsDLPack


class MemoryPointer:
    """Bytes of a buffer: gpu_data of an Array. Numba's driver functions take it as one of their MemoryPointers.

    It keeps its owner, an Array, and is valid while that is open.
    """

    __module__ = "gpushm.numba"
    __slots__ = {
        "offset": "In bytes, from the start of the owner's buffer.",
        "owner": "The Array whose memory it is.",
        "size": "In bytes.",
    }

    def __init__(self, owner: Array, offset: int, size: int) -> None:
        """offset: from the start of the owner's buffer; size: in bytes."""
        self.owner: Array = owner
        self.offset: int = offset
        self.size: int = size

    @property
    def device_pointer_value(self) -> int | None:
        """The address for a GPU; None: no GPU reaches it."""
        start = self.owner.buffer.device_ptr
        return None if start is None else start + self.offset

    @property
    def device_pointer(self) -> int:
        """The address for a GPU. TypeError: no GPU reaches it."""
        found = self.device_pointer_value
        if found is None:
            raise TypeError(f"buffer {self.owner.name!r} is in host memory, which no GPU reaches")
        return found

    handle = device_pointer

    @property
    def device_ctypes_pointer(self) -> ctypes.c_size_t:
        """device_pointer as Numba passes it to the driver."""
        return ctypes.c_size_t(self.device_pointer)

    @property
    def __cuda_memory__(self) -> bool:
        return self.owner.buffer.device_ptr is not None

    @property
    def _cuda_memsize_(self) -> int:
        return self.size

    def view(self, start: int, stop: int | None = None) -> MemoryPointer:
        """The bytes from start to stop, or to the end."""
        size = (self.size if stop is None else stop) - start
        if start < 0 or size < 0 or start + size > self.size:
            raise ValueError(f"bytes {start} to {stop} are not within {self.size} bytes")
        return MemoryPointer(self.owner, self.offset + start, size)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a gpushm.numba.MemoryPointer is an address of this process: send get_ipc_handle() of it")

    def __repr__(self) -> str:
        return f"<gpushm.numba.MemoryPointer: {self.size} bytes of {self.owner.name!r} from {self.offset}>"


def memory_of(array: Array) -> MemoryPointer:
    """All bytes from an Array's lowest element to its highest."""
    if not array.itemsize:
        return MemoryPointer(array, array.offset, array.nbytes)
    below, size = _foreign.span(array.shape, array.strides, array.itemsize)
    return MemoryPointer(array, array.offset - below, size)


class IpcArrayHandle(_handle.Handle["Array"]):
    """A Handle of an Array with the rules of Numba's IpcArrayHandle: get_ipc_handle() of the Array makes it.

    While one open() lasts, another raises ValueError. close() ends it, and the array's views with it. `base` is the
    Array, in the process that made the handle, which keeps it; None in others.
    """

    __module__ = "gpushm.numba"
    __slots__ = ("_array", "_desc")

    def __init__(self, ipc_handle: IpcHandle | Iterable[int], array_desc: Mapping[str, Any] | None = None) -> None:
        """ipc_handle: an IpcHandle, or the bytes of a handle. array_desc: shape, strides and dtype of an array in that
        memory; None: the handle is an array's. ValueError: it is no handle of gpushm.
        """
        offset, data = (ipc_handle.offset, ipc_handle.handle) if isinstance(ipc_handle, IpcHandle) else (0, ipc_handle)
        super().__init__(data)
        self._desc = None
        if array_desc is not None:
            self._layout = self._desc = {"offset": offset, **array_desc}
        if self._layout is None:
            raise ValueError("this is the handle of a whole buffer: array_desc says which array is in it")
        self._array: Array | None = None

    def open(
        self,
        access: Access | None = None,
        timeout: float | None = 0,
        *,
        device: Device | None = None,
    ) -> Array:
        """As Handle.open(). device: None maps the array for the GPU that the thread works on, and returns a copy there
        if that GPU has no peer access. ValueError: it is open already.
        """
        try:
            return self._open_direct(access, timeout, "current" if device is None else device)
        except _core.DeviceFailed:
            if device is not None:
                raise
            return self._open_staged(timeout, _driver.current_device())

    def _open_direct(self, access: Access | None, timeout: float | None, device: Device | None) -> Array:
        self._check_closed()
        self._array = found = super().open(access, timeout, device=device)
        return found

    def _open_staged(self, timeout: float | None, device: int | None) -> Array:
        self._check_closed()
        with super().open("r", timeout, device=self._own_device()) as there:
            strides, offset = there.strides if there.itemsize else None, there.offset - memory_of(there).offset
            self._array = _copied_to(device, there)
            return self._array.buffer.array(there.shape, there.dtype, strides=strides, offset=offset)

    def _check_closed(self) -> None:
        if self._array is not None:
            raise ValueError("IpcHandle is already opened")

    def close(self) -> None:
        """Closes the array and its views. DLPack tensors keep it open. ValueError: it is not open."""
        if self._array is None:
            raise ValueError("IpcHandle not opened")
        array, self._array = self._array, None
        array.__exit__(None, None, None)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._bytes, self._desc)

    def __enter__(self) -> Array:
        """open()."""
        return self.open()

    def __exit__(self, *raised: object) -> None:
        """close()."""
        self.close()


def array_handle(array: Array) -> IpcArrayHandle:
    """The IpcArrayHandle of an Array."""
    made = IpcArrayHandle(bytes(_handle.handle_of(array)))
    made.base = array
    return made


class MemHandle(bytes):
    """The bytes by which any process opens a buffer with open_ipc_array(): what Numba has in a CUipcMemHandle."""

    __slots__ = ()

    @property
    def reserved(self) -> bytes:
        """The bytes."""
        return bytes(self)


class IpcHandle:
    """A part of a buffer's memory for another process, with the names and rules of Numba's IpcHandle.

    get_ipc_handle() makes it. While one open lasts, another raises ValueError; close() ends it.
    """

    __module__ = "gpushm.numba"
    __slots__ = {
        "_memory": "The IpcArrayHandle of the bytes.",
        "base": "The memory, in the process that made the handle, which keeps it; None in others.",
        "handle": "The MemHandle of the buffer: bytes.",
        "offset": "In bytes, from the buffer's start.",
        "size": "In bytes.",
        "source_info": "Numba's; not used.",
    }

    def __init__(
        self, base: MemoryPointer | None, handle: bytes, size: int, source_info: object = None, offset: int = 0
    ) -> None:
        """Use get_ipc_handle() to make one. ValueError: gpushm did not make these bytes."""
        self.base: MemoryPointer | None = base
        self.handle: MemHandle = MemHandle(handle)
        self.size: int = size
        self.source_info: object = source_info
        self.offset: int = offset
        self._memory = IpcArrayHandle(self.handle, {"shape": size, "dtype": "uint8", "offset": offset})

    def open(self, context: object = None) -> MemoryPointer:
        """open_direct(), or open_staged() if the context's GPU has no peer access to the memory."""
        try:
            return self.open_direct(context)
        except _core.DeviceFailed:
            if _device_of(context) is None:
                raise
            return self.open_staged(context)

    def open_direct(self, context: object = None) -> MemoryPointer:
        """Attaches, and copies nothing. context: of the GPU that shall use the memory: Numba's, a Device of cuda.core,
        or an ordinal; None: the memory's own GPU. Errors: as gpushm.open(); DeviceFailed: no peer access.
        """
        return memory_of(self._memory._open_direct(None, 0, _device_of(context)))

    def open_staged(self, context: object = None) -> MemoryPointer:
        """Copies the memory, by way of the host, into new memory of the context's GPU. Errors: as gpushm.open() and
        gpushm.create(); NotFound: no pool is on that GPU.
        """
        return memory_of(self._memory._open_staged(0, _device_of(context)))

    def open_array(
        self, context: object, shape: Shape, dtype: DTypeLike, strides: Shape | None = None
    ) -> Array:
        """open() as an Array of that shape, dtype and strides (in bytes; None: C order)."""
        owner = self.open(context).owner
        try:
            return owner.buffer.array(shape, dtype, strides=strides, offset=owner.offset)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes what open() has attached, and its views. DLPack tensors keep it open. ValueError: it is not open."""
        self._memory.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return IpcHandle, (None, self.handle, self.size, self.source_info, self.offset)

    def __repr__(self) -> str:
        return f"<gpushm.numba.IpcHandle: {self.size} bytes of {self._memory.name!r} from {self.offset}>"


def get_ipc_handle(memory: MemoryPointer | Array | SupportsCudaArrayInterface | SupportsDLPack) -> IpcHandle:
    """An IpcHandle of gpu_data of an Array, or of the memory of an array of any library that as_array() finds: Numba's
    Context.get_ipc_handle().
    """
    pointer = memory if isinstance(memory, MemoryPointer) else memory_of(_foreign.as_array(memory))
    handle = bytes(_handle.handle_of(pointer.owner.buffer))
    return IpcHandle(pointer, handle, pointer.size, offset=pointer.offset)


@contextmanager
def open_ipc_array(
    handle: Iterable[int], shape: Shape, dtype: DTypeLike, strides: Shape | None = None, offset: int = 0
) -> Iterator[Array]:
    """Yields an Array of that shape, dtype and strides over a buffer: Numba's cuda.open_ipc_array().

    handle: get_ipc_handle(array).handle.reserved, as bytes or numbers. strides: None is C order. strides and offset are
    in bytes, the offset from the buffer's start. The end of the section closes the array and its views. Errors: as
    gpushm.open(); ValueError: these are other bytes.
    """
    desc = {"shape": shape, "dtype": dtype, "strides": strides, "offset": offset}
    with IpcArrayHandle(handle, desc)._open_direct(None, 0, None) as array:
        yield array


def _copied_to(device: int | None, there: Array) -> Array:
    """The bytes of an Array's memory in an anonymous buffer on that GPU, or, where it is None, in the same pool. They
    go by way of the host, because the GPUs may have no access to each other.
    """
    memory = memory_of(there)
    pool = there.pool
    if device not in (None, there.device):
        pool = _foreign.pool_for(_core._ON_GPU, None, device=device).name
    staged, copy = bytearray(memory.size), _core.create(None, memory.size, pool=pool)
    with there.buffer.array(memory.size, "uint8", offset=memory.offset) as source:
        source._read_into(staged)
    copy._write_from(staged)
    return copy


def _device_of(context: object) -> int | None:
    """The ordinal of a context of Numba's, of a Device of cuda.core's, or itself."""
    if context is None or isinstance(context, int):
        return context
    device = getattr(context, "device", context)
    for name in ("device_id", "id"):
        if hasattr(device, name):
            return int(getattr(device, name))
    raise TypeError(f"{type(context).__name__} is no context: Numba's, a Device of cuda.core's or an ordinal is wanted")
