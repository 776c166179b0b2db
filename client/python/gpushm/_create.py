# SPDX-License-Identifier: MIT
"""Buffers made like another array, from data, or in pinned memory; and sections that pin memory of the caller's."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import TYPE_CHECKING, Any, overload

from . import _core, _foreign, _libraries
from ._array import on_host

if TYPE_CHECKING:
    from typing import Unpack

    import numpy as np

    from ._typing import (
        Array,
        CreateOptions,
        CudaStream,
        DType,
        DTypeLike,
        HasShapeAndDType,
        HostArray,
        LikeOptions,
        NDArray,
        Order,
        Shape,
        Source,
    )


def create_like(name: str | None, like: HasShapeAndDType, **options: Unpack[LikeOptions]) -> Array:
    """create() with the shape and dtype of another array, of any library; options as for create().

    An array in Fortran order gives one in Fortran order, unless order or strides are given.
    """
    options.setdefault("dtype", like.dtype)
    if "strides" not in options:
        options.setdefault("order", _order_of(like))
    return _core.create(name, like.shape, **options)


def _order_of(like: object) -> Order:
    """'F' for an array that is in Fortran order and not in C order, of any library; else 'C'."""
    flags = getattr(like, "flags", None)
    try:
        return "F" if flags and flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"] else "C"
    except (KeyError, TypeError):
        return "C"


def to_device(
    obj: Source,
    name: str | None = None,
    *,
    stream: CudaStream | None = None,
    to: Array | None = None,
    **options: Unpack[CreateOptions],
) -> Array:
    """Copies an array, a scalar or a record into a new buffer, or into the Array `to`: Numba's cuda.to_device().

    obj: what numpy.asarray() takes, or GPU memory of any library that has the CUDA Array Interface or DLPack. name:
    None makes an anonymous buffer, see create(). stream: a CUDA stream to queue the copy on; `obj` must live until the
    stream has done the copy. options as for create(). Returns the Array, which is not published yet.
    """
    if to is not None:
        to.copy_to_device(obj, stream)
        return to
    like: Any = obj if hasattr(obj, "dtype") and hasattr(obj, "shape") else _foreign.described(obj)
    made = create_like(name, like, **options)
    try:
        made.copy_to_device(like if isinstance(like, _foreign.Memory) else obj, stream)
    except BaseException:
        made.discard()
        raise
    return made


# ---- pinned memory ----


def pinned_array(
    shape: Shape, dtype: DTypeLike = "uint8", *, name: str | None = None, **options: Unpack[CreateOptions]
) -> Array:
    """An Array in pinned host memory, which CPU and GPU use at the same time: Numba's pinned_array(), mapped_array().

    Its numpy() is the ndarray; __cuda_array_interface__ and DLPack are the GPU's view of the same bytes. pool: None is
    the first pinned pool. Otherwise as create(). NotFound: the daemon has no pinned pool, because it has no GPU.
    """
    if options.get("pool") is None:
        options["pool"] = _pinned_pool()
    return _core.create(name, shape, dtype, **options)


def pinned_array_like(
    like: HasShapeAndDType, *, name: str | None = None, **options: Unpack[CreateOptions]
) -> Array:
    """pinned_array() with the shape, dtype and order of another array."""
    options.setdefault("order", _order_of(like))
    return pinned_array(like.shape, like.dtype, name=name, **options)


mapped_array = pinned_array
mapped_array_like = pinned_array_like


def _pinned_pool() -> str:
    for pool in _core.pools():
        if pool.kind == "pinned" and pool.allowed and not pool.failed:
            return pool.name
    raise _core.NotFound(errno.ENOENT, 'the daemon has no pinned pool: it has no GPU; pool="host" is without one')


# ---- sections that pin the caller's memory ----


def _memory(array: HostArray) -> NDArray:
    """A contiguous array on the host as a numpy.ndarray, which keeps the memory."""
    import numpy

    found = numpy.asarray(array)
    if not found.flags.forc:
        raise ValueError("only contiguous arrays can be pinned: pages are, not elements")
    if found is not array and not isinstance(array, _core.Array) and not numpy.shares_memory(found, array):
        raise TypeError(f"{type(array).__name__} has no memory that could be pinned: numpy.ndarray has")
    return found


@contextmanager
def _registered(array: HostArray, mapped: bool) -> Iterator[int | None]:
    """Yields the GPU's address, where mapped."""
    if isinstance(array, _core.Array) and not on_host(array):
        raise TypeError(f"buffer {array.name!r} is on a GPU: there is nothing to pin")
    memory = _memory(array)
    address = memory.ctypes.data
    if (isinstance(array, _core.Array) and array.kind == "pinned") or memory.nbytes == 0:
        yield address
        return
    device = _core._pin(address, memory.nbytes, mapped)
    buffer = id(array.buffer) if isinstance(array, _core.Array) else 0
    _libraries.registered.append(buffer)
    try:
        yield device
    finally:
        _libraries.registered.remove(buffer)
        _core._pin(address, 0, False)


@contextmanager
def pinned(*arrays: HostArray) -> Iterator[None]:
    """Pins host arrays in this section, so that copies to and from a GPU are fast and asynchronous: Numba's
    cuda.pinned().

    arrays: contiguous, writable numpy.ndarrays, and Arrays of host pools; those of pinned pools are always pinned. The
    caller must wait for queued copies before the section ends. DeviceFailed: no driver.
    """
    with ExitStack() as stack:
        for array in arrays:
            stack.enter_context(_registered(array, mapped=False))
        yield


class Mapped:
    """A host array as a GPU sees it, as long as its section lasts: Numba's MappedNDArray."""

    __module__ = "gpushm.numba"
    __slots__ = {"_address": "Of its first byte, for a GPU; None: the section has ended.", "host": "The numpy.ndarray."}

    def __init__(self, host: NDArray, address: int) -> None:
        """host: the numpy.ndarray; address: of its first byte, for a GPU."""
        self.host: NDArray = host
        self._address: int | None = address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._address is None:
            raise AttributeError("the section of mapped() has ended, and the GPU can't reach the array any more")
        data = (self._address if self.host.size else 0, not self.host.flags.writeable)
        return dict(self.host.__array_interface__, data=data, version=3, stream=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return tuple(self.host.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy.dtype."""
        return self.host.dtype

    def numpy(self) -> NDArray:
        """The host array itself."""
        return self.host

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> NDArray:
        import numpy

        return numpy.array(self.host, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Any:
        return self.host[key]

    def __setitem__(self, key: Any, value: object) -> None:
        self.host[key] = value

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a gpushm.numba.Mapped is an address of this process: send its numpy(), or a gpushm.Array")

    def __repr__(self) -> str:
        return f"<gpushm.numba.Mapped {self.shape} {self.dtype}{'' if self._address is not None else ', ended'}>"


@overload
def mapped(array: HostArray, /) -> AbstractContextManager[Mapped]: ...
@overload
def mapped(first: HostArray, second: HostArray, /, *more: HostArray) -> AbstractContextManager[list[Mapped]]: ...
@overload
def mapped() -> AbstractContextManager[list[Mapped]]: ...
def mapped(*arrays: HostArray) -> AbstractContextManager[Mapped | list[Mapped]]:
    """Lets kernels use host arrays in this section, without a copy: Numba's cuda.mapped().

    Yields a Mapped for each: one alone, more as a list. Otherwise as pinned().
    """
    return _mapped(arrays)


@contextmanager
def _mapped(arrays: tuple[HostArray, ...]) -> Iterator[Mapped | list[Mapped]]:
    import numpy

    with ExitStack() as stack:
        made = []
        for array in arrays:
            address = stack.enter_context(_registered(array, mapped=True))
            made.append(Mapped(numpy.asarray(array), address or 0))
            stack.callback(setattr, made[-1], "_address", None)
        yield made[0] if len(made) == 1 else made
