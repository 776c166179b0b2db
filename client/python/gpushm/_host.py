# SPDX-License-Identifier: MIT
"""Arrays and NumPy: views of the host's memory, copies, single elements.

Everything here is made of the core's views and of its two copies, _read_into() and _write_from(), which take
memory of the host with the array's own shape and item size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core, _driver, _dtype, _foreign, _records

if TYPE_CHECKING:
    from ._array import Array


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("this needs NumPy: install numpy") from None
    return numpy


def numpy_dtype(array: _core.Array) -> Any:
    """The numpy.dtype of its elements; TypeError where NumPy has none."""
    dtype = array.dtype
    if isinstance(dtype, str):
        raise TypeError(
            f"NumPy has no {dtype}: install ml_dtypes for bfloat16 and float8, or take the bytes with view('uint8'), "
            "or hand the array to a library that knows the type (__dlpack__)"
        )
    return dtype


def on_host(array: _core.Array) -> bool:
    """Whether the CPU reaches its memory."""
    return array.kind in ("host", "pinned")


def as_numpy(array: _core.Array) -> Any:
    """A numpy.ndarray over the array's own memory."""
    if not on_host(array):
        raise TypeError(f"buffer {array.name!r} is on a GPU, and NumPy is not: copy_to_host() makes a copy")
    numpy, dtype = _numpy(), numpy_dtype(array)
    span, at = array._span()
    return numpy.ndarray(array.shape, dtype, buffer=span, offset=at, strides=array.strides)


def _same_shape(array: _core.Array, other: Any, what: str) -> None:
    if tuple(other.shape) != array.shape:
        raise ValueError(f"{what} has shape {tuple(other.shape)}, the array {array.shape}")


def copy_to_host(array: _core.Array, out: Any, stream: Any) -> Any:
    """See Array.copy_to_host()."""
    if out is None:
        out = _numpy().empty(array.shape, numpy_dtype(array))
    elif hasattr(out, "dtype") and hasattr(out, "shape") and not isinstance(array.dtype, str):
        _same_shape(array, out, "out")
        if _dtype.encode(out.dtype) != _told(array):
            raise TypeError(f"out has dtype {out.dtype}, the array {array.dtype}")
    array._read_into(out, stream)
    return out


def _told(array: _core.Array) -> tuple[str, str | None]:
    return array.dtype_name, array.descr


def copy_from_host(array: _core.Array, source: Any, stream: Any) -> None:
    """See Array.copy_from_host()."""
    raw = isinstance(source, (bytes, bytearray, memoryview)) and memoryview(source).nbytes == array.nbytes
    matched = source if raw else _matched(array, source, "same_kind")
    array._write_from(matched, stream)
    if not raw and stream is not None and not _is_the_callers(matched, source):
        _wait(array, stream)


def _is_the_callers(matched: Any, source: Any) -> bool:
    """Whether _matched() gave the source's own memory, which stays as long as the caller sees to it."""
    numpy = _numpy()
    if isinstance(source, numpy.ndarray):
        return bool(numpy.may_share_memory(matched, source))
    while isinstance(matched.base, numpy.ndarray):
        matched = matched.base
    return not matched.flags.owndata


def _wait(array: _core.Array, stream: Any) -> None:
    """What was queued there reads memory of our own, which goes now. Only a GPU's copies are queued."""
    if array.device_ptr is not None:
        _driver.synchronize(_core._stream(stream), array.device)


def _matched(array: _core.Array, source: Any, casting: str) -> Any:
    """The source as an ndarray of the array's dtype and shape; numbers of Python are taken as they come."""
    numpy, dtype = _numpy(), numpy_dtype(array)
    found = numpy.asarray(source) if hasattr(source, "dtype") else numpy.asarray(source, dtype)
    if found.dtype != dtype:
        found = found.astype(dtype, casting=casting)
    return numpy.broadcast_to(found, array.shape)


def copy_to_device(array: _core.Array, source: Any, stream: Any) -> None:
    """See Array.copy_to_device()."""
    ours = False
    if isinstance(source, _core.Array) and on_host(source):
        _same_shape(array, source, "the source")
        source = as_numpy(source)
        # NumPy alone knows a good order for elements that are both read and written.
        ours = on_host(array) and bool(_numpy().may_share_memory(source, array._span()[0]))
        source = source.copy() if ours else source
    elif isinstance(source, _foreign.Memory) or _foreign.is_cuda_array(source):
        memory = _foreign.memory_of(source)
        _same_shape(array, memory, "the source")
        if _told(array) == _foreign.told(memory) and _foreign.copy_into(array, memory, stream):
            return
        source, ours = _foreign.to_host(memory), True
    copy_from_host(array, source, stream)
    if ours and stream is not None:
        _wait(array, stream)


def to_array(array: _core.Array, dtype: Any, copy: bool | None) -> Any:
    """Array.__array__(): the memory itself where NumPy reaches it, else a copy."""
    if on_host(array):
        found, copied = as_numpy(array), False
    elif copy is False:
        raise ValueError(f"buffer {array.name!r} is on a GPU: NumPy can have a copy only")
    else:
        found, copied = copy_to_host(array, None, None), True
    if dtype is not None and found.dtype != _numpy().dtype(dtype):
        if copy is False:
            raise ValueError("another dtype needs a copy")
        return found.astype(dtype)
    return found.copy() if copy and not copied else found


# ---- elements ----


def _field(array: _core.Array, name: str) -> Any:
    """A record's field, over the same memory."""
    fields = getattr(array.dtype, "fields", None) or {}
    if name not in fields:
        raise KeyError(f"the array has no field {name!r}; it has {', '.join(map(repr, fields)) or 'none'}")
    dtype, at = fields[name][:2]
    base, inner = dtype.subdtype or (dtype, ())
    steps = list(array.strides)
    step = dtype.itemsize
    for n in inner:
        step //= n or 1
        steps.append(step)
    try:
        return array.buffer.array(array.shape + inner, base, strides=tuple(steps), offset=array.offset + at)
    except _core.LayoutError as e:
        # NumPy reads such fields on the CPU; a kernel that did would lose its context.
        e.strerror = f"field {name!r} is not aligned: make the record with align=True, or copy_to_host() first"
        raise


def get(array: Array, key: Any) -> Any:
    """Array.__getitem__()."""
    if isinstance(key, str):
        return _field(array, key)
    keys = key if isinstance(key, tuple) else (key,)
    view = _core.Array.__getitem__(array, key)
    if view.ndim > 0 or any(k is Ellipsis for k in keys):
        return view
    return _element(view)


def _element(view: _core.Array) -> Any:
    """The one element of a view without axes: copied to the host; a record as a Record, which is no copy."""
    if getattr(view.dtype, "names", None):
        return _records.Record(view)
    return copy_to_host(view, None, None)[()]


def put(array: Array, key: Any, value: Any) -> None:
    """Array.__setitem__()."""
    view = _field(array, key) if isinstance(key, str) else _core.Array.__getitem__(array, key)
    if on_host(view) and not isinstance(view.dtype, str) and not view.readonly:
        # NumPy broadcasts, converts, and knows what to do where both sides overlap.
        as_numpy(view)[...] = value if not isinstance(value, _core.Array) else to_array(value, None, None)
    elif isinstance(value, _core.Array) or hasattr(value, "__cuda_array_interface__"):
        copy_to_device(view, value, None)
    else:
        view._write_from(_matched(view, value, "unsafe"))
