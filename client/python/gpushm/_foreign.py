# SPDX-License-Identifier: MIT
"""Arrays of other libraries: where their memory is, copies of it, and which buffer it belongs to.

Only memory of a pool can be shared with another process. as_array() finds the buffer whose memory a tensor or an array
of another library uses, and returns an Array of it; to_device() copies other memory.
"""

from __future__ import annotations

import ctypes
import errno
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _core, _driver, _dtype, _libraries

if TYPE_CHECKING:
    from ._typing import Array, DType, NDArray, Source, Stream

_CUDA, _CUDA_HOST, _CUDA_MANAGED = 2, 3, 13  # DLDeviceType
_LEGACY_STREAM = 1  # the legacy default stream, for DLPack and for the driver


def is_cuda_array(obj: object) -> bool:
    """Whether it has memory that a GPU reaches, by the CUDA Array Interface or by DLPack: Numba's cuda.is_cuda_array(),
    for both.
    """
    if _interface(obj) is not None:
        return True
    device = getattr(obj, "__dlpack_device__", None)
    return callable(device) and device()[0] in (_CUDA, _CUDA_HOST, _CUDA_MANAGED)


def _interface(obj: Any) -> dict[str, Any] | None:
    """The CUDA Array Interface; None: there is none. PyTorch raises other errors for types that it cannot name."""
    try:
        found: dict[str, Any] | None = obj.__cuda_array_interface__
    except Exception:
        return None
    return found


def _says_too_little(interface: dict[str, Any]) -> bool:
    """Whether DLPack says more. bfloat16 and float8 have no typestr of their own, but DLPack has codes for them. Before
    version 3 the interface names no stream (JAX has version 2): only DLPack waits for work that is still queued.
    """
    return interface.get("version", 0) < 3 or (interface["typestr"][1] == "V" and not interface.get("descr"))


class Memory(NamedTuple):
    """Where an array's elements are; `owner` keeps the memory."""

    owner: object
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None  # in bytes; None: C order
    dtype: DType  # a numpy.dtype, or gpushm's name where NumPy has none
    on_gpu: bool
    device: int | None = None
    stream: int | None = None

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return _core._dtype_bits(self.dtype) // 8 if isinstance(self.dtype, str) else int(self.dtype.itemsize)

    def encoded(self) -> tuple[str, str | None]:
        """Its dtype as gpushm has it: (name, descr or None)."""
        return (self.dtype, None) if isinstance(self.dtype, str) else _dtype.encode(self.dtype)

    @property
    def flags(self) -> dict[str, bool]:
        """Those that create_like() uses."""
        c, f = c_strides(self.shape, self.itemsize), f_strides(self.shape, self.itemsize)
        return {"C_CONTIGUOUS": self.strides in (None, c), "F_CONTIGUOUS": (self.strides or c) == f}

    def span(self) -> tuple[int, int]:
        """(bytes below the first element, all bytes from the lowest element to the highest)."""
        return span(self.shape, self.strides or c_strides(self.shape, self.itemsize), self.itemsize)


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


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """(bytes below the first element, all bytes from the lowest element to the highest)."""
    below = above = 0
    if 0 in shape:
        return 0, 0
    for n, stride in zip(shape, strides, strict=True):
        below -= min(0, (n - 1) * stride)
        above += max(0, (n - 1) * stride)
    return below, below + above + itemsize


def memory_of(obj: Any) -> Memory:
    """Where an object's memory is, by the CUDA Array Interface, DLPack, or numpy.asarray(). TypeError: by none."""
    if isinstance(obj, Memory):
        return obj
    interface = _interface(obj)
    if interface is not None and not (hasattr(obj, "__dlpack__") and _says_too_little(interface)):
        return _from_interface(obj, interface)
    if hasattr(obj, "__dlpack__"):
        return _from_dlpack(obj)
    import numpy

    found = numpy.asarray(obj)
    return Memory(found, found.ctypes.data, found.shape, found.strides, found.dtype, on_gpu=False)


def _from_dlpack(obj: Any) -> Memory:
    """Asks an exporter for a capsule, and reads it without taking the tensor: the capsule's end gives it back.

    DLPack orders the exporter's work on a GPU before the stream that is named here.
    """
    # Without a stream some exporters order nothing.
    stream = {"stream": _LEGACY_STREAM} if obj.__dlpack_device__()[0] == _CUDA else {}
    try:
        capsule = obj.__dlpack__(max_version=(1, 1), **stream)
    except TypeError:  # An exporter of before DLPack 1.0.
        capsule = obj.__dlpack__(**stream)
    name, shape, strides, address, (kind, device) = _core._read_dlpack(capsule)
    on_gpu = kind == _CUDA
    dtype, ordered_on = _dtype.decode(name, None), _LEGACY_STREAM if on_gpu else None
    return Memory(capsule, address, shape, strides, dtype, on_gpu=on_gpu, device=device, stream=ordered_on)


def _from_interface(obj: Any, interface: dict[str, Any]) -> Memory:
    import numpy

    if interface.get("mask") is not None:
        raise TypeError("a masked array of the CUDA Array Interface can't be taken")
    descr = interface.get("descr")
    plain = descr is None or interface["typestr"][1] != "V" or [tuple(d) for d in descr] == [("", interface["typestr"])]
    return Memory(
        obj,
        interface["data"][0] or 0,
        tuple(interface["shape"]),
        tuple(interface["strides"]) if interface.get("strides") is not None else None,
        numpy.dtype(interface["typestr"] if plain else descr),
        on_gpu=True,
        stream=interface.get("stream"),
    )


def described(obj: Any) -> Any:
    """An object with shape and dtype that copy_to_device() takes, of one that has neither."""
    if is_cuda_array(obj):
        return memory_of(obj)
    import numpy

    return numpy.asarray(obj)


# ---- copies ----


def to_host(memory: Memory) -> NDArray:
    """A numpy.ndarray of the elements, copied; done on return."""
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


def copy_into(array: Array, memory: Memory, stream: Stream | None) -> bool:
    """Copies GPU memory into an Array whose elements are in the same order, without the host. False: nothing was
    copied, because the order differs, or because both overlap, which a driver's copy does not allow.
    """
    strides = memory.strides or c_strides(memory.shape, memory.itemsize)
    ordered = (array.is_c_contiguous() and strides == c_strides(memory.shape, memory.itemsize)) or (
        array.is_f_contiguous() and strides == f_strides(memory.shape, memory.itemsize)
    )
    to = array.device_ptr
    if not ordered or to is None or _overlap(to, array.nbytes, memory):
        return False
    if array.readonly:
        raise _core.ReadOnly(errno.EROFS, f'buffer "{array.name}" is open for reading only')
    handle = _core._stream(stream)
    if memory.stream is not None and memory.stream != (handle or _LEGACY_STREAM):
        _driver.synchronize(memory.stream, memory.device)
    if stream is None:
        _libraries.wait_for_streams(array.__dlpack_device__()[1] if array.device is not None else None)
    if array.nbytes:
        device = array.device if array.device is not None else memory.device
        _driver.copy(to, memory.address, array.nbytes, handle, device)
        # An empty copy notes the stream in the buffer: the array's next consumer waits for it.
        array.buffer.array((0,), "uint8")._write_from(b"", stream)
    return True


_SEED = 65536  # bytes


def repeat(array: Array, element: bytes, stream: Stream | None) -> bool:
    """Fills GPU memory whose elements are contiguous with one of them: a part from the host, and then what is filled is
    copied behind itself, so that little passes through the host. False: nothing was done, as copy_into().
    """
    start = array.device_ptr
    if start is None or array.host_ptr is not None or not (array.is_c_contiguous() or array.is_f_contiguous()):
        return False
    done = min(array.nbytes, _SEED // len(element) * len(element)) if 0 < len(element) <= _SEED else 0
    if done == 0:
        return False
    array.buffer.array((done,), "uint8", offset=array.offset)._write_from(element * (done // len(element)), stream)
    handle = _core._stream(stream)
    if stream is not None:
        _driver.synchronize(handle, array.device)  # The driver may read the part later, and it goes now.
    while done < array.nbytes:
        n = min(done, array.nbytes - done)
        _driver.copy(start + done, start, n, handle or _LEGACY_STREAM, array.device)
        done += n
    if stream is None:
        _driver.synchronize(None, array.device)
    return True


def _overlap(address: int, nbytes: int, memory: Memory) -> bool:
    """Whether the memory overlaps these bytes."""
    below, size = memory.span()
    start = memory.address - below
    return start < address + nbytes and address < start + size


# ---- the buffer of some memory ----


def as_array(obj: Source | Memory) -> Array:
    """An Array over the memory of another library's array or tensor: no copy, and other processes can open it.

    obj: what a library made of an Array of this process by DLPack, the CUDA Array Interface or the buffer protocol,
    also sliced or reshaped. The Array is read-only where its buffer is. TypeError: the memory belongs to no buffer that
    is open here, so no other process can use it; to_device() makes a copy that others can use.
    """
    if isinstance(obj, _core.Array):
        return cast("Array", obj)
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
        "shared; to_device(obj) makes a copy in one"
    )
