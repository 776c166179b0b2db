# SPDX-License-Identifier: MIT
"""Arrays of other libraries: what they tell of their memory, and whose memory it is.

Only memory that came from a pool can be shared with another process. as_array() finds the buffer that a tensor or an
array of another library lies in, and gives it back as an Array; to_device() copies what lies elsewhere.
"""

from __future__ import annotations

import ctypes
import errno
from typing import Any

from . import _core, _dlpack, _driver, _dtype


def is_cuda_array(obj: Any) -> bool:
    """Whether it tells memory that a GPU reaches: by the CUDA Array Interface, or by DLPack. Numba's
    cuda.is_cuda_array(), for both.
    """
    if _interface(obj) is not None:
        return True
    device = getattr(obj, "__dlpack_device__", None)
    return callable(device) and device()[0] in (_dlpack.CUDA, _dlpack.CUDA_HOST, _dlpack.CUDA_MANAGED)


def _interface(obj: Any) -> dict[str, Any] | None:
    """The CUDA Array Interface; None: there is none. PyTorch raises whatever for types that it has no word for."""
    try:
        found: dict[str, Any] | None = obj.__cuda_array_interface__
    except Exception:
        return None
    return found


class Memory:
    """Where an array's elements are, whoever owns them; `owner` keeps them there."""

    __slots__ = ("address", "device", "dtype", "on_gpu", "owner", "shape", "stream", "strides")

    def __init__(
        self,
        owner: Any,
        address: int,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        dtype: Any,
        *,
        on_gpu: bool,
        device: int | None = None,
        stream: int | None = None,
    ) -> None:
        """strides in bytes, None: C order; dtype: a numpy.dtype, or gpushm's name of one that NumPy has not."""
        self.owner = owner
        self.address = address
        self.shape = shape
        self.strides = strides
        self.dtype = dtype
        self.on_gpu = on_gpu
        self.device = device
        self.stream = stream

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _itemsize(self.dtype)

    @property
    def flags(self) -> dict[str, bool]:
        """As far as create_like() asks."""
        c, f = c_strides(self.shape, self.itemsize), f_strides(self.shape, self.itemsize)
        return {"C_CONTIGUOUS": self.strides in (None, c), "F_CONTIGUOUS": (self.strides or c) == f}

    def span(self) -> tuple[int, int]:
        """(bytes below the first element, all bytes) from the lowest element to the highest."""
        below = above = 0
        if 0 in self.shape:
            return 0, 0
        for n, stride in zip(self.shape, self.strides or c_strides(self.shape, self.itemsize), strict=True):
            below -= min(0, (n - 1) * stride)
            above += max(0, (n - 1) * stride)
        return below, below + above + self.itemsize


def told(memory: Memory) -> tuple[str, str | None]:
    """Its dtype in gpushm's words, (name, descr or None)."""
    return (memory.dtype, None) if isinstance(memory.dtype, str) else _dtype.encode(memory.dtype)


def c_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """In bytes."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def f_strides(shape: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    """In bytes."""
    return tuple(reversed(c_strides(tuple(reversed(shape)), itemsize)))


def _itemsize(dtype: Any) -> int:
    if not isinstance(dtype, str):
        return int(dtype.itemsize)
    return _dlpack.ITEMSIZES[dtype]


def memory_of(obj: Any) -> Memory:
    """What an object tells of its memory: CUDA Array Interface, DLPack, or what numpy.asarray() takes.

    TypeError: it tells nothing.
    """
    if isinstance(obj, Memory):
        return obj
    interface = _interface(obj)
    # bfloat16 and float8 have no typestr of their own; DLPack has words for them.
    nameless = interface is not None and interface["typestr"][1] == "V" and not interface.get("descr")
    if interface is not None and not (nameless and hasattr(obj, "__dlpack__")):
        return _from_interface(obj, interface)
    if hasattr(obj, "__dlpack__"):
        found = _dlpack.describe(obj)
        return Memory(
            found,
            found.address,
            found.shape,
            found.strides,
            found.dtype,
            on_gpu=found.device[0] == _dlpack.CUDA,
            device=found.device[1],
            stream=_dlpack.LEGACY_STREAM if found.device[0] == _dlpack.CUDA else None,
        )
    return _from_numpy(obj)


def _from_interface(obj: Any, told: dict[str, Any]) -> Memory:
    import numpy

    if told.get("mask") is not None:
        raise TypeError("a masked array of the CUDA Array Interface can't be taken")
    descr = told.get("descr")
    plain = descr is None or told["typestr"][1] != "V" or [tuple(d) for d in descr] == [("", told["typestr"])]
    address = told["data"][0]
    return Memory(
        obj,
        address or 0,
        tuple(told["shape"]),
        tuple(told["strides"]) if told.get("strides") is not None else None,
        numpy.dtype(told["typestr"] if plain else descr),
        on_gpu=True,
        stream=told.get("stream"),
    )


def _from_numpy(obj: Any) -> Memory:
    import numpy

    found = numpy.asarray(obj)
    return Memory(
        found,
        found.ctypes.data,
        found.shape,
        found.strides,
        found.dtype,
        on_gpu=False,
    )


def described(obj: Any) -> Any:
    """Something with shape and dtype, that copy_to_device() takes: of what has none by itself."""
    if is_cuda_array(obj):
        return memory_of(obj)
    import numpy

    return numpy.asarray(obj)


# ---- copies ----


def to_host(memory: Memory) -> Any:
    """A numpy.ndarray of the elements; what is on a GPU is copied, done on return."""
    import numpy

    below, nbytes = memory.span()
    raw = numpy.empty(nbytes, "uint8")
    if nbytes and memory.on_gpu:
        if memory.stream is not None:
            _driver.synchronize(memory.stream, memory.device)
        _driver.read(raw.ctypes.data, memory.address - below, nbytes, memory.device)
    elif nbytes:
        ctypes.memmove(raw.ctypes.data, memory.address - below, nbytes)
    return numpy.ndarray(memory.shape, memory.dtype, raw, below, memory.strides)


def copy_into(array: Any, memory: Memory, stream: Any) -> bool:
    """GPU memory into an Array whose elements lie in the same order, without a way over the host. False: they do
    not, or are in part the same, which a driver's copy does not stand; and nothing was copied.
    """
    strides = memory.strides or c_strides(memory.shape, memory.itemsize)
    ordered = (array.is_c_contiguous() and strides == c_strides(memory.shape, memory.itemsize)) or (
        array.is_f_contiguous() and strides == f_strides(memory.shape, memory.itemsize)
    )
    if not ordered or array.device_ptr is None or _overlap(array, memory):
        return False
    if array.readonly:
        raise _core.ReadOnly(errno.EROFS, f'buffer "{array.name}" is open for reading only')
    handle = _core._stream(stream)
    if memory.stream is not None and memory.stream != (handle or _dlpack.LEGACY_STREAM):
        _driver.synchronize(memory.stream, memory.device)
    if array.nbytes:
        device = array.device if array.device is not None else memory.device
        _driver.copy(array.device_ptr, memory.address, array.nbytes, handle, device)
        # A copy of nothing: whoever is given the array is told by it which stream to wait for.
        array.buffer.array((0,), "uint8")._write_from(b"", stream)
    return True


def _overlap(array: Any, memory: Memory) -> bool:
    """Of an Array whose elements are contiguous."""
    below, nbytes = memory.span()
    start = memory.address - below
    return bool(start < array.device_ptr + array.nbytes and array.device_ptr < start + nbytes)


# ---- whose memory it is ----


def as_array(obj: Any) -> Any:
    """The Array whose memory another library's array or tensor lies in: no copy, and it can be sent to others.

    Takes what a library made of an Array of this process by DLPack, the CUDA Array Interface or the buffer protocol,
    or sliced or reshaped since. It is read-only where the buffer is. TypeError: the memory is from no buffer that is
    open here, so no other process can have it; to_device() makes a copy that others can.
    """
    if isinstance(obj, _core.Array):
        return obj
    memory = memory_of(obj)
    below, nbytes = memory.span()
    for buffer in _core._opened():
        for start in {buffer.device_ptr, buffer.host_ptr}:
            if start is None:
                continue
            at = memory.address - below - start
            if nbytes and at >= 0 and at + nbytes <= buffer.nbytes:
                return buffer.array(memory.shape, memory.dtype, strides=memory.strides, offset=at + below)
    raise TypeError(
        f"the memory of this {type(obj).__name__} is from no buffer that this process has open: only a pool's can be "
        "shared; to_device(obj, name) makes a copy in one"
    )
