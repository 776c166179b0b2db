# SPDX-License-Identifier: MIT
"""Arrays of other libraries: where their memory is, copies of it, and which buffer it belongs to.

Only memory of a pool can be shared with another process. as_array() finds the buffer whose memory a tensor or an array
of another library uses, and returns an Array of it; create_like() and copy_to_device() copy other memory.
"""

from __future__ import annotations

import ctypes
import errno
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from . import _core, _driver, _dtype, _libraries

if TYPE_CHECKING:
    from typing import Unpack

    from ._typing import Array, CudaStream, HasShapeAndDType, LikeOptions, NDArray, Order, Source

_CPU, _CUDA, _CUDA_HOST, _CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
_LEGACY_STREAM, _PER_THREAD_STREAM = 1, 2  # the default streams, for DLPack and for the driver


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
    type: tuple[str, str | None]  # gpushm's name of the dtype, and a record's descr
    on_gpu: bool
    device: int = -1  # its ordinal
    stream: int | None = None  # what is queued there comes first
    padded: bool = False  # elements narrower than a byte have a byte each
    temporary: bool = False  # the memory is a copy, which only `owner` keeps

    @property
    def dtype(self) -> Any:
        """A numpy.dtype, or gpushm's name where NumPy has none."""
        return _dtype.decode(*self.type)

    @property
    def itemsize(self) -> int:
        """Bytes of an element; 0: elements are packed."""
        return 1 if self.padded else _dtype.itemsize(self.type[0])

    def is_strided(self) -> bool:
        """Whether it is not in C order."""
        return self.strides is not None and self.strides != c_strides(self.shape, self.itemsize)

    @property
    def flags(self) -> dict[str, bool]:
        """Those that create_like() uses."""
        c, f = c_strides(self.shape, self.itemsize), c_strides(self.shape[::-1], self.itemsize)[::-1]
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


def span(shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int) -> tuple[int, int]:
    """(bytes below the first element, all bytes from the lowest element to the highest)."""
    below = above = 0
    if 0 in shape:
        return 0, 0
    for n, stride in zip(shape, strides, strict=True):
        below -= min(0, (n - 1) * stride)
        above += max(0, (n - 1) * stride)
    return below, below + above + itemsize


def memory_of(obj: Any, stream: CudaStream | None = None) -> Memory:
    """Where an object's memory is, by the CUDA Array Interface, DLPack, or numpy.asarray(). TypeError: by none."""
    found = memory_if_any(obj, stream)
    if found is not None:
        return found
    import numpy

    return _from_numpy(numpy.asarray(obj))


def memory_if_any(obj: Any, stream: CudaStream | None = None) -> Memory | None:
    """Where an array's memory is; None: it is no array, or gpushm has no such type. stream: on which it will be used,
    as an argument of ours.
    """
    if isinstance(obj, Memory):
        return obj
    if isinstance(obj, _core.Array):
        return _from_array(obj, stream)
    if isinstance(obj, getattr(sys.modules.get("numpy"), "ndarray", ())):
        try:
            return _from_numpy(obj)
        except TypeError:
            return None
    if not is_torchs(obj):
        interface = _interface(obj)
        if interface is not None and not (hasattr(obj, "__dlpack__") and _says_too_little(interface)):
            return _from_interface(obj, interface)
    return _from_tensor(obj, stream) if hasattr(obj, "__dlpack__") else None


def is_torchs(obj: Any) -> bool:
    """Whether it is a tensor of PyTorch's."""
    return isinstance(obj, getattr(sys.modules.get("torch"), "Tensor", ()))


def exchange_apis() -> dict[type, Any]:
    """DLPack's exchange APIs: functions in C, by the type of the tensors that they read and make. Of subclasses, which
    may be no tensors in memory, only PyTorch's own is one.
    """
    torch = sys.modules.get("torch")
    tensor = getattr(torch, "Tensor", None)
    api = getattr(tensor, "__dlpack_c_exchange_api__", None)
    if type(api).__name__ != "PyCapsule":
        return {}
    parameter = getattr(getattr(torch, "nn", None), "Parameter", tensor)
    return {cast("type", tensor): api, cast("type", parameter): api}


def _plain(obj: Any) -> Any:
    """The same tensor, as PyTorch gives it away: without a gradient, and with its elements as they are in memory."""
    if getattr(obj, "requires_grad", False):
        obj = obj.detach()
    for name in ("resolve_conj", "resolve_neg"):
        if hasattr(obj, name):
            obj = getattr(obj, name)()
    return obj


def _from_tensor(obj: Any, stream: CudaStream | None) -> Memory:
    plain = _plain(obj)
    try:
        found = _from_dlpack(plain, stream)
    except (BufferError, NotImplementedError, RuntimeError):
        # JAX has no DLPack code for int4, but arrays of ml_dtypes' int4.
        made = None if is_torchs(obj) else _as_numpy(obj)
        if made is None:
            raise
        return _from_numpy(made)._replace(temporary=True)
    return found._replace(temporary=True) if plain is not obj and _is_a_copy(obj) else found


def _is_a_copy(obj: Any) -> bool:
    """Whether _plain() has copied: a tensor of PyTorch's may be the conjugate or the negative of what is in memory."""
    return any(getattr(obj, name, bool)() for name in ("is_conj", "is_neg"))


def _as_numpy(obj: Any) -> NDArray | None:
    """What numpy.asarray() makes of an array of another library; None: no array of numbers."""
    import numpy

    try:
        found = numpy.asarray(obj)
        _dtype.encode(found.dtype)
    except Exception:
        return None
    return found


def _from_array(array: _core.Array, stream: CudaStream | None) -> Memory:
    on_gpu = array.kind in _core._ON_GPU
    address, device = (array.device_ptr, array.device) if on_gpu else (array.host_ptr, None)
    if array.device_ptr is not None:
        array._wait_for_others(_core._stream(stream) or _LEGACY_STREAM)
    strides = array.strides if array.itemsize else None
    where = -1 if device is None else device
    return Memory(array, address or 0, array.shape, strides, (array.dtype_name, array.descr), on_gpu, where)


def _from_numpy(found: Any) -> Memory:
    name, descr = _dtype.encode(found.dtype)
    # ml_dtypes has a byte for each element.
    padded = _core._dtype_bits(name) % 8 != 0
    address = found.__array_interface__["data"][0]
    return Memory(found, address, found.shape, found.strides, (name, descr), on_gpu=False, padded=padded)


def _from_dlpack(obj: Any, stream: CudaStream | None) -> Memory:
    """Asks an exporter for a capsule, and reads it without taking the tensor: the capsule's end gives it back.

    DLPack orders the exporter's work on a GPU before the stream that is named here.
    """
    kind, number = obj.__dlpack_device__()
    on_gpu, words = kind in (_CUDA, _CUDA_MANAGED), {}
    if on_gpu:
        handle = _core._stream(stream)
        # Without a stream some exporters order nothing, and PyTorch does not know each thread's default stream.
        words["stream"] = handle if handle and handle != _PER_THREAD_STREAM else _LEGACY_STREAM
    try:
        capsule, retyped = _capsule_of(obj, words)
    except BufferError:
        # PyTorch exports only tensors of the GPU that the thread works on.
        if not on_gpu or number == _driver.current_device():
            raise
        with _driver.context(number):
            capsule, retyped = _capsule_of(obj, words)
    name, shape, strides, address, (kind, device), padded = _core._read_dlpack(capsule)
    if not on_gpu and kind not in (_CPU, _CUDA_HOST):
        raise TypeError(f"the memory is on DLPack's device ({kind}, {device}), from which gpushm can't copy")
    where = device if on_gpu else -1
    return Memory(capsule, address, shape, strides, (retyped or name, None), on_gpu, where, words.get("stream"), padded)


def _capsule_of(obj: Any, words: dict[str, int]) -> tuple[Any, str | None]:
    """The capsule, and the dtype's name where the capsule has another one of the same size."""
    try:
        try:
            return obj.__dlpack__(max_version=(1, 1), **words), None
        except TypeError:  # An exporter of before DLPack 1.0.
            return obj.__dlpack__(**words), None
    except BufferError:
        # PyTorch before 2.9 has no DLPack code for float8, but it can view the bytes.
        if not is_torchs(obj) or obj.element_size() != 1:
            raise
        name = _dtype.encode(obj.dtype)[0]
        return obj.view(sys.modules["torch"].uint8).__dlpack__(**words), name


def _from_interface(obj: Any, interface: dict[str, Any]) -> Memory:
    import numpy

    if interface.get("mask") is not None:
        raise TypeError("a masked array of the CUDA Array Interface can't be taken")
    descr = interface.get("descr")
    plain = descr is None or interface["typestr"][1] != "V" or [tuple(d) for d in descr] == [("", interface["typestr"])]
    address = interface["data"][0] or 0
    return Memory(
        obj,
        address,
        tuple(interface["shape"]),
        tuple(interface["strides"]) if interface.get("strides") is not None else None,
        _dtype.encode(numpy.dtype(interface["typestr"] if plain else descr)),
        on_gpu=True,
        device=_driver.device_of(address) if address else 0,
        stream=interface.get("stream"),
    )


def wait_for(memory: Memory, stream: CudaStream | None) -> None:
    """Waits for what comes first, unless it is on the stream on which the memory will be used."""
    if memory.stream is not None and memory.stream != (_core._stream(stream) or _LEGACY_STREAM):
        _driver.synchronize(memory.stream, memory.device)


# ---- copies ----


def to_host(memory: Memory) -> NDArray:
    """A numpy.ndarray of the elements, copied; done on return. Of padded elements it has the bytes."""
    import numpy

    below, nbytes = memory.span()
    raw = numpy.empty(nbytes, "uint8")
    if nbytes and memory.on_gpu:
        wait_for(memory, None)
        _driver.copy(raw.ctypes.data, memory.address - below, nbytes, None, memory.device)
    elif nbytes:
        ctypes.memmove(raw.ctypes.data, memory.address - below, nbytes)
    return numpy.ndarray(memory.shape, "uint8" if memory.padded else memory.dtype, raw, below, memory.strides)


_SEED = 65536  # bytes


def repeat(array: Array, element: bytes, stream: CudaStream | None) -> bool:
    """Fills GPU memory whose elements are contiguous with one of them: a part from the host, and then what is filled is
    copied behind itself, so that little passes through the host. False: nothing was done, for others nothing is faster.
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


# ---- arrays like another ----


def create_like(name: str | None, like: HasShapeAndDType | Source, **options: Unpack[LikeOptions]) -> Array:
    """create() with the shape and dtype of another array, of any library, or of what numpy.asarray() makes one of;
    options as for create().

    An array in Fortran order gives one in Fortran order, unless order or strides are given. copy_to_device(like) fills
    it with the same elements.
    """
    found: Any = like if hasattr(like, "dtype") and hasattr(like, "shape") else memory_of(like)
    options.setdefault("dtype", found.dtype)
    if "strides" not in options:
        options.setdefault("order", order_of(found))
    return _core.create(name, found.shape, **options)


def copy_of(source: Any, **options: Any) -> Array:
    """An anonymous Array with the same elements; options as for create()."""
    made = create_like(None, source, **options)
    made.copy_to_device(source)
    return made


def publish_view(view: Array, name: str, mode: int, replace: bool, alone: bool, source: Any = None) -> Array:
    """An Array of that name: the view's own memory, if it is alone in its buffer, unpublished, and of that mode; else a
    copy of the source, or of the view.
    """
    buffer, layout = view.buffer, (view.shape, view.dtype, view.strides, view.offset)
    if alone and buffer.state == "filling" and mode == 0o600:
        if "" not in buffer:  # which an earlier call was refused with
            buffer.describe({"": layout})
        own = buffer[""]
        if (own.shape, own.dtype, own.strides, own.offset) == layout:
            buffer.publish_as(name, "shared", replace=replace)
            return own
    copy = copy_of(view if source is None else source, pool=buffer.pool, mode=mode, device="current")
    copy.publish_as(name, "shared", replace=replace)
    return copy


def order_of(like: object) -> Order:
    """'F' for an array that is in Fortran order and not in C order, of any library; else 'C'."""
    flags = getattr(like, "flags", None)
    try:
        return "F" if flags and flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"] else "C"
    except (KeyError, TypeError):
        return "C"


# ---- many tensors at once ----


def tensors_of(buffer: Any, from_dlpack: Any, names: list[str]) -> list[Any]:
    """What from_dlpack() makes of the buffer's arrays of these names. For PyTorch's all of them are made in C, or at
    least ordered at once.
    """
    torch: Any = sys.modules.get("torch")
    of_torch = torch is not None and from_dlpack is getattr(torch, "from_dlpack", "")
    if not names or not of_torch:
        return [from_dlpack(buffer[name]) for name in names]
    if buffer.readonly:
        _libraries.warn_shared("PyTorch", buffer)
    api = exchange_apis().get(torch.Tensor)
    if api:
        return _core._tensors(buffer, names, api)
    words: dict[str, Any] = {"max_version": (1, 0)}
    kind, device = buffer[names[0]].__dlpack_device__()
    if kind == _CUDA:
        words["stream"] = torch.cuda.current_stream(device).cuda_stream or _LEGACY_STREAM
    elif kind == _CUDA_HOST:
        words["dl_device"] = (_CPU, 0)  # PyTorch does not take pinned memory as such.
    found = [from_dlpack(buffer[names[0]].__dlpack__(**words))]
    if kind == _CUDA:
        words["stream"] = -1
    return found + [from_dlpack(buffer[name].__dlpack__(**words)) for name in names[1:]]


# ---- pools and buffers for other libraries ----


def pool_for(kinds: tuple[str, ...], name: str | None, **wanted: int | None) -> _core.PoolInfo:
    """The pool of that name, whichever GPU it is on; None: the first in which the user may create that is as wanted."""
    for pool in _core.pools():
        fits = pool.allowed and not pool.failed and all(getattr(pool, k) == v for k, v in wanted.items())
        if pool.kind in kinds and (pool.name == name if name else fits):
            return pool
    which = f'"{name}"' if name else "for you, " + ", ".join(f"{k} {v}" for k, v in wanted.items())
    raise _core.NotFound(errno.ENOENT, f"there is no {' or '.join(kinds)} pool {which}: gpushm.pools() lists them")


def as_array(obj: Source | Memory) -> Array:
    """An Array over the memory of another library's array or tensor: no copy, and other processes can open it.

    obj: what a library made of an Array of this process by DLPack, the CUDA Array Interface or the buffer protocol,
    also sliced or reshaped. The Array is read-only where its buffer is. TypeError: the memory belongs to no buffer that
    is open here, so no other process can use it: create_like() and copy_to_device() make a copy that others can use.
    """
    if isinstance(obj, _core.Array):
        return cast("Array", obj)
    memory = memory_of(obj)
    below, nbytes = memory.span()
    for buffer in _core._opened():
        for start in set(buffer._starts):
            if start is None:
                continue
            at = memory.address - below - start
            if nbytes and at >= 0 and at + nbytes <= buffer.nbytes:
                return buffer.array(memory.shape, _dtype.of(*memory.type), strides=memory.strides, offset=at + below)
    raise TypeError(
        f"the memory of this {type(obj).__name__} is from no buffer that this process has open: only a pool's can be "
        "shared; create_like(None, obj) and copy_to_device(obj) make a copy in one"
    )
