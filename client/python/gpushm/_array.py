# SPDX-License-Identifier: MIT
"""gpushm.Array, Buffer and Record: the core's objects with what NumPy adds to them: copies, elements, fields.

The copies are made of the core's _read_into() and _write_from(), which take memory of the host with the array's own
shape and item size.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, SupportsIndex, TypeVar, cast, overload

from . import _copy, _core, _dtype, _foreign, _handle, _ipc, _show, _values

if TYPE_CHECKING:
    import numpy as np

    from ._typing import CudaStream, DType, DTypeLike, Key, NDArray, Source, ViewKey

Out = TypeVar("Out")
T = TypeVar("T")


class _OfBuffer:
    """What an Array and a Buffer both have, beside the core's."""

    __slots__ = ()

    @contextmanager
    def suspended(self: Any, *, idle: bool = False, timeout: float | None = None) -> Iterator[None]:
        """A `with` block in which the buffer is suspended: suspend(), and at its end resume() unless it is closed."""
        self.suspend(idle=idle)
        try:
            yield
        finally:
            if not self.closed:
                self.resume(timeout)

    def unlink(self: Any) -> None:
        """Frees the buffer's name at once, and the memory when no process has it open any more."""
        buffer = getattr(self, "buffer", self)
        buffer.connection.unlink(buffer.name)

    def __reduce_ex__(self: Any, protocol: SupportsIndex) -> tuple[Any, ...]:
        return _handle.reduce(self)


class Array(_values.Values, _OfBuffer, _core.Array):
    """A typed, strided array in a buffer, or a view of one: memory with a shape, which computes nothing itself.

    create() and open() return one that owns its buffer: close(), or the end of a with block, gives the buffer
    back. Views share the memory and keep the buffer open.

    NumPy, CuPy, PyTorch, Numba and JAX use it without a copy: through DLPack, the CUDA Array Interface, or, in host
    and pinned memory, the buffer protocol; what they compute with it are their arrays: numpy(), cupy.asarray(array),
    torch.from_dlpack(array). == compares elements; hash() is that of the object.
    """

    __module__ = "gpushm"
    __slots__ = ()

    # ---- the host ----

    def numpy(self) -> NDArray:
        """A numpy.ndarray over the same memory, of host and pinned arrays; it keeps the buffer open.

        TypeError for memory on a GPU: copy_to_host() copies it.
        """
        if not on_host(self):
            raise TypeError(f"buffer {self.name!r} is on a GPU, and NumPy is not: copy_to_host() makes a copy")
        numpy, dtype = _numpy(), _numpy_dtype(self)
        span, at = self._span()
        found: NDArray = numpy.ndarray(self.shape, dtype, buffer=span, offset=at, strides=self.strides)
        return found

    @overload
    def copy_to_host(self, ary: None = None, stream: CudaStream | None = 0) -> NDArray: ...
    @overload
    def copy_to_host(self, ary: Out, stream: CudaStream | None = 0) -> Out: ...
    def copy_to_host(self, ary: Any = None, stream: CudaStream | None = 0) -> Any:
        """Copies the array to the host and returns the copy.

        ary: an object with the buffer protocol, or a numpy.ndarray, of this shape and dtype and any strides, to copy
        to; None: a new numpy.ndarray in C order. stream: a CUDA stream to queue the copy on; `ary` must live until
        the stream has done the copy. 0 or None: done on return. Other threads run meanwhile.
        """
        if ary is None:
            ary = _numpy().empty(self.shape, _numpy_dtype(self))
        elif hasattr(ary, "dtype") and hasattr(ary, "shape") and not isinstance(self.dtype, str):
            _same_shape(self, ary, "ary")
            if _dtype.encode(ary.dtype) != (self.dtype_name, self.descr):
                raise TypeError(f"ary has dtype {ary.dtype}, the array {self.dtype}")
        elif not hasattr(ary, "dtype"):
            with memoryview(ary) as view:
                if view.nbytes == self.nbytes and not _are_its_bytes(self, view):
                    raise TypeError(
                        f"ary has elements of format {view.format!r} and shape {view.shape}, the array "
                        f"{self.dtype_name} and {self.shape}: take memoryview(ary).cast('B') for its bytes"
                    )
        self._read_into(ary, stream)
        return ary

    def copy_from_host(self, source: Source, stream: CudaStream | None = None) -> None:
        """Fills the array from anything that numpy.asarray() takes, or from a tensor or an array of any library, on the
        host or a GPU, strided as it is and with a gradient or not. It is broadcast to this shape. Where the dtype is
        another one, NumPy converts it. bytes, and a memoryview of them, are the array's bytes, if they are as many.

        stream: a CUDA stream to queue the copy on; `source` must live until the stream has done the copy (but a
        source that is converted first is waited for). None or 0: done on return. Errors: ReadOnly, ValueError
        (shapes), TypeError (a dtype that does not fit).
        """
        if isinstance(source, (bytes, bytearray, memoryview)) and _are_its_bytes(self, memoryview(source)):
            self._write_from(source, stream)
        else:
            _copy.fill(self, source, stream)

    def copy_to_device(self, ary: Source | _foreign.Memory, stream: CudaStream | None = 0) -> None:
        """Fills the array from another one, on a GPU or the host: Numba's DeviceNDArray.copy_to_device()."""
        if hasattr(ary, "shape") and not _copy.is_numpys(ary):
            _same_shape(self, ary, "the source")
        _copy.fill(self, ary, stream)

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        shared = on_host(self)
        if copy is False and not shared:
            raise ValueError(f"buffer {self.name!r} is on a GPU: NumPy can have a copy only")
        found = self.numpy() if shared else self.copy_to_host()
        wanted = found.dtype if dtype is None else _numpy().dtype(dtype)
        if found.dtype != wanted:
            if copy is False:
                raise ValueError("another dtype needs a copy")
            return found.astype(wanted)
        return found.copy() if copy and shared else found

    def fill(self, value: object, stream: CudaStream | None = None) -> None:
        """Sets all elements to a value; otherwise as copy_from_host()."""
        numpy: Any = _dtype.numpy_if_any()
        if numpy is None:
            one = _values.to_bytes(self, value, ())
            return None if _foreign.repeat(self, one, stream) else _copy.fill(self, value, stream)
        one = numpy.asarray(value, _numpy_dtype(self))
        if one.ndim:
            raise ValueError(f"fill() takes one value, not an array of shape {one.shape}: array[...] = takes that")
        if not _foreign.repeat(self, one.tobytes(), stream):
            self.copy_from_host(one, stream)

    # ---- elements ----

    @overload
    def __getitem__(self, key: str | ViewKey, /) -> Array: ...
    @overload
    def __getitem__(self, key: SupportsIndex | tuple[SupportsIndex, ...], /) -> Any: ...
    @overload
    def __getitem__(self, key: tuple[SupportsIndex | ViewKey, ...], /) -> Array: ...
    def __getitem__(self, key: str | Key, /) -> Any:
        """A view; an element, where integers select one; a field's view, where the key is a str."""
        if isinstance(key, str):
            return self._field(key)
        view = super().__getitem__(key)
        if view.ndim > 0 or any(k is Ellipsis for k in (key if isinstance(key, tuple) else (key,))):
            return view
        # One element: a Record shares the memory, anything else is copied to the host.
        if getattr(view.dtype, "names", None):
            return Record(view)
        return view.copy_to_host()[()] if _dtype.numpy_if_any() else view.item()

    def __setitem__(self, key: str | Key, value: object) -> None:
        """Copies a value that NumPy can broadcast, or another array, into the view."""
        view = self._field(key) if isinstance(key, str) else super().__getitem__(key)
        ours_or_numpys = isinstance(value, Array) or not hasattr(value, "__dlpack__") or _copy.is_numpys(value)
        if on_host(view) and ours_or_numpys and not isinstance(view.dtype, str) and not view.readonly:
            # NumPy broadcasts, converts, and handles memory that overlaps.
            view.numpy()[...] = value.__array__() if isinstance(value, Array) else value
        else:
            _copy.fill(view, value, None, "unsafe")

    def __iter__(self) -> Iterator[Any]:
        """The elements, or the views, along the first axis."""
        return (self[i] for i in range(len(self)))

    def _field(self, name: str) -> Array:
        """A record's field, over the same memory."""
        fields = getattr(self.dtype, "fields", None) or {}
        if name not in fields:
            raise KeyError(f"the array has no field {name!r}; it has {', '.join(map(repr, fields)) or 'none'}")
        dtype, at = fields[name][:2]
        base, inner = dtype.subdtype or (dtype, ())
        strides = self.strides + _foreign.c_strides(inner, base.itemsize)
        try:
            return self.buffer.array(self.shape + inner, base, strides=strides, offset=self.offset + at)
        except _core.LayoutError as e:
            # NumPy reads such fields on the CPU; a CUDA kernel would fault, and its context would be lost.
            e.strerror = f"field {name!r} is not aligned: make the record with align=True, or copy_to_host() first"
            raise

    def _laid_out(self, dtype: Any, shape: Any, strides: Any, offset: SupportsIndex | None) -> Array:
        """For open(): the array with another dtype, shape, strides or offset; None: its own, and C order if it has that
        or nothing is its own.
        """
        is_own = dtype is None or shape is None or offset is None
        dtype, shape = self.dtype if dtype is None else dtype, self.shape if shape is None else shape
        if is_own and strides is None and not self.is_c_contiguous():
            # Other strides stay as they are, for C order would mix up the elements.
            strides, bits = self.strides, _core._dtype_bits(self.dtype_name)
            lengths = (shape,) if isinstance(shape, SupportsIndex) else tuple(shape)
            if lengths != self.shape or _dtype.bits(dtype) != bits:
                what = f'array "{self.array_name}" is not in C order'
                raise _core.BadArgument(errno.EINVAL, f"{what}: with another shape or item size, give strides, too")
        return self.buffer.array(shape, dtype, strides=strides, offset=self.offset if offset is None else offset)

    @property
    def flags(self) -> dict[str, bool]:
        """C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE and OWNDATA, as NumPy calls them."""
        return {
            "C_CONTIGUOUS": self.is_c_contiguous(),
            "F_CONTIGUOUS": self.is_f_contiguous(),
            "WRITEABLE": not self.readonly,
            "OWNDATA": self.owns_buffer,
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The CUDA Array Interface, version 3; AttributeError for host memory and float8. It does not keep the array
        open: see close().
        """
        # It has no field for an owner: a library that wraps the pointer must keep the Array alive; Numba and CuPy do.
        if self.device_ptr is None and self.kind in _core._BY_DRIVER:
            self.__copy__()  # which raises ForkError in a forked child
            raise AttributeError("the array has no address for a GPU")
        if self.device_ptr is None:
            raise AttributeError("the array is in the host's memory, which the CUDA Array Interface can't tell")
        typestr, descr = self.typestr, self.descr
        if typestr is None:
            raise AttributeError("the CUDA Array Interface has no name for that dtype: __dlpack__() knows it")
        # First, because both let other threads run, which may close the array.
        fields = {} if descr is None else {"descr": _dtype.fields(descr)}
        stream = self._last_stream()
        strides = None if self.is_c_contiguous() else self.strides
        data = self.device_ptr if self.size else 0, self.readonly
        return dict(shape=self.shape, typestr=typestr, data=data, strides=strides, stream=stream, version=3, **fields)

    # ---- the name, and other processes ----

    def handle(self) -> _handle.Handle[Array]:
        """A Handle by which another process opens this array, or view; it can be pickled. The array itself pickles
        as its handle, once it is published, and is open where it is unpickled. Either publishes an anonymous buffer.
        """
        return _handle.handle_of(self)

    def get_ipc_handle(self) -> _ipc.IpcArrayHandle:
        """handle() with the rules of Numba's get_ipc_handle(): it keeps this array, and is opened once at a time."""
        return _ipc.array_handle(self)

    @property
    def gpu_data(self) -> _ipc.MemoryPointer:
        """The array's bytes, for gpushm.numba.get_ipc_handle() and for Numba's driver functions."""
        return _ipc.memory_of(self)

    def __copy__(self) -> Array:
        return self[...]

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a gpushm.Array has no deep copy: create_like(None, array) and copy_to_device(array) make one")

    # ---- how it looks ----

    def _repr_html_(self) -> str:
        return _show.array_html(self)

    def __repr__(self) -> str:
        if self.closed:
            return "<gpushm.Array, closed>"
        name = self.name + (f":{self.array_name}" if self.array_name else "")
        dirty = ", dirty" if self.dirty else ""
        return (
            f"<gpushm.Array {name!r} {self.shape} {self.dtype_name}, {self.state} in pool {self.pool!r}"
            f"{', read-only' if self.readonly else ''}{', copy-on-write' if self.access == 'c' else ''}{dirty}>"
        )


class Buffer(_OfBuffer, _core.Buffer):
    """A buffer as this process has it open: a mapping of names to Arrays.

    close(), the end of a with block, or the end of the last reference to it and its arrays gives it back.
    """

    __module__ = "gpushm"
    __slots__ = ()

    def values(self) -> list[Array]:
        """The arrays."""
        return [self[name] for name in self]

    def items(self) -> list[tuple[str, Array]]:
        """The names with their arrays."""
        return [(name, self[name]) for name in self]

    @overload
    def get(self, name: str, default: None = None, /) -> Array | None: ...
    @overload
    def get(self, name: str, default: T, /) -> Array | T: ...
    def get(self, name: str, default: Any = None, /) -> Any:
        """The array of that name, or the default."""
        return self[name] if name in self else default  # noqa: SIM401

    def __missing__(self, name: object) -> NoReturn:
        import difflib

        # Of many names, a comparison with each takes long.
        near = difflib.get_close_matches(str(name), list(self)[:1000])
        what = f"near it are {', '.join(map(repr, near))}" if near else f"it has {len(self)}"
        raise KeyError(f"buffer {self.name!r} has no array {name!r}; {what}")

    def __setitem__(self, name: str, value: object) -> None:
        """Copies a value into the array of that name, as `buffer[name][...] = value` does."""
        self[name][...] = value

    def update(self, values: Mapping[str, Source], stream: CudaStream | None = None) -> None:
        """Copies many values into the arrays of their names; each has its array's shape, or is a number. All copies are
        queued first, and then waited for once.

        values: arrays and tensors of any library, on the host or a GPU, as a state_dict(). stream: as for
        Array.copy_from_host(). Errors: KeyError (no array of that name), ValueError (a shape), TypeError (a dtype),
        ReadOnly. KeyError and ValueError are raised before anything is copied.
        """
        _copy.fill_many([(name, self[name], value) for name, value in values.items()], stream)

    def tensors(self, from_dlpack: Callable[[Any], T], names: Iterable[str] | None = None) -> dict[str, T]:
        """A dict of tensors over all arrays, or those of these names: {name: from_dlpack(array)}.

        from_dlpack: of the library: torch.from_dlpack, numpy.from_dlpack, ... For PyTorch this is several times faster
        than asking for each. The tensors share the memory and keep the buffer open. Errors: KeyError, BufferError (an
        array that DLPack has no words for).
        """
        wanted = list(self) if names is None else list(names)
        return dict(zip(wanted, _foreign.tensors_of(self, from_dlpack, wanted), strict=True))

    def handle(self) -> _handle.Handle[Buffer]:
        """A Handle by which another process opens this buffer; it can be pickled. The Buffer itself pickles as its
        handle, once it is published, and is open where it is unpickled.
        """
        return _handle.handle_of(self)

    def __deepcopy__(self, memo: object) -> NoReturn:
        raise TypeError("a deep copy of a gpushm.Buffer wants a name: create_many(name, buffer) and copies")

    def _ipython_key_completions_(self) -> list[str]:
        return list(self)

    def _repr_html_(self) -> str:
        return _show.buffer_html(self)

    def __repr__(self) -> str:
        if self.closed:
            return "<gpushm.Buffer, closed>"
        arrays = len(self)
        return (
            f"<gpushm.Buffer {self.name!r}: {arrays} {'array' if arrays == 1 else 'arrays'}, {self.nbytes} bytes, "
            f"{self.state} in pool {self.pool!r}>"
        )


class Record:
    """A record in its array's memory: the element that an integer selects in an Array of records. Numba's DeviceRecord.

    record["x"] and record.x read a field, record["x"] = 1 writes it to the array; a field that is an array is an Array
    that shares memory. numpy.asarray(record), or copy_to_host(), copies all of it. It pickles as its array does.
    """

    __module__ = "gpushm.types"
    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        """`array` has no axes."""
        object.__setattr__(self, "_array", array)

    @property
    def array(self) -> Array:
        """The record as an Array without axes."""
        found: Array = self._array
        return found

    @property
    def dtype(self) -> DType:
        """The numpy.dtype, with its fields."""
        return self.array.dtype

    def copy_to_host(self, ary: NDArray | None = None, stream: CudaStream | None = 0) -> np.void:
        """The record as a numpy.void; otherwise as Array.copy_to_host()."""
        found: Any = self.array.copy_to_host(ary, stream)
        return cast("np.void", found[()])

    def copy_to_device(self, ary: Record | np.void | tuple[Any, ...], stream: CudaStream | None = 0) -> None:
        """Fills the record from a numpy.void, a tuple of its fields, or another record."""
        found = ary.copy_to_host() if isinstance(ary, Record) else ary
        self.array.copy_to_device(_numpy().array(found, self.dtype)[()], stream)

    def item(self) -> tuple[Any, ...]:
        """A tuple of the fields."""
        return cast("tuple[Any, ...]", self.copy_to_host().item())

    def close(self) -> None:
        """Ends its use of the buffer, as Array.close() of a view does."""
        self._array.close()

    def __getitem__(self, name: str) -> Any:
        field = self._array[name]
        return field if field.ndim else field[()]

    def __setitem__(self, name: str, value: object) -> None:
        self._array[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in (self.dtype.fields or {}):
            raise AttributeError(f"the record has no field {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: object) -> None:
        if name not in (self.dtype.fields or {}):
            raise AttributeError(f"the record has no field {name!r}")
        self[name] = value

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray:
        return self.array.__array__(dtype, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._array.__cuda_array_interface__)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self._array,)

    def __eq__(self, other: object) -> Any:
        return self.copy_to_host() == (other.copy_to_host() if isinstance(other, Record) else other)

    __hash__: ClassVar[None] = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<gpushm.types.Record {self.item()} of {self._array.name!r}>"


# ---- helpers ----

on_host = _values.on_host


def _numpy() -> Any:
    try:
        import numpy
    except ImportError:
        raise ImportError("this needs NumPy: install numpy") from None
    return numpy


def _numpy_dtype(array: _core.Array) -> Any:
    """The numpy.dtype of its elements; TypeError where NumPy has none."""
    dtype = array.dtype
    if isinstance(dtype, str) and not array.itemsize:
        raise TypeError(
            f"NumPy has no packed {dtype}: take the bytes with copy_to_host(bytearray(array.nbytes)), or hand the "
            "array to a library that knows the type (__dlpack__)"
        )
    if isinstance(dtype, str):
        raise TypeError(
            f"NumPy has no {dtype}: install ml_dtypes for bfloat16 and float8, or take the bytes with view('uint8'), "
            "or hand the array to a library that knows the type (__dlpack__)"
        )
    return dtype


def _are_its_bytes(array: _core.Array, view: memoryview) -> bool:
    """Whether they can be copied as they are; others NumPy converts."""
    return view.nbytes == array.nbytes and _dtype.is_raw(view, array.dtype_name, array.shape)


def _same_shape(array: _core.Array, other: Any, what: str) -> None:
    if tuple(other.shape) != array.shape:
        raise ValueError(f"{what} has shape {tuple(other.shape)}, the array {array.shape}")
