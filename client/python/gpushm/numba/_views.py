# SPDX-License-Identifier: MIT
"""Memory that is no pool's, as a GPU sees it: other libraries' arrays, and sections that pin arrays of the host."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from .. import _core, _driver, _foreign, _libraries
from .._array import on_host

if TYPE_CHECKING:
    from .._typing import CudaStream, DType, HostArray, NDArray, Source


class DeviceView:
    """An array that is no pool's as a GPU sees it: Numba's DeviceNDArray. as_cuda_array() makes it of an array of
    another library, which it keeps.
    """

    __module__ = "gpushm.numba"
    __slots__ = {"_memory": "Where the elements are; None: the section of mapped() has ended."}

    def __init__(self, memory: _foreign.Memory) -> None:
        """memory: where the elements are."""
        self._memory: _foreign.Memory | None = memory

    def _found(self) -> _foreign.Memory:
        if self._memory is None:
            raise AttributeError("the section of mapped() has ended, and the GPU can't reach the array any more")
        return self._memory

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        import numpy

        m = self._found()
        dtype, writeable = numpy.dtype(m.dtype), getattr(getattr(m.owner, "flags", None), "writeable", True)
        told = {"shape": m.shape, "typestr": dtype.str, "descr": dtype.descr, "strides": m.strides, "version": 3}
        return dict(told, data=(m.address if 0 not in m.shape else 0, not writeable), stream=None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return self._found().shape

    @property
    def dtype(self) -> DType:
        """The numpy.dtype."""
        return self._found().dtype

    def copy_to_host(self, ary: NDArray | None = None, stream: CudaStream = 0) -> NDArray:
        """Copies the elements, behind the stream's work, to `ary`, or to a new numpy.ndarray; done on return."""
        memory = self._found()
        _driver.synchronize(_core._stream(stream), memory.device)
        found = _foreign.to_host(memory)
        if ary is None:
            return found
        if (ary.shape, ary.dtype) != (found.shape, found.dtype):
            raise ValueError(f"ary is {ary.shape} {ary.dtype}, the array {found.shape} {found.dtype}")
        ary[...] = found
        return ary

    def copy_to_device(self, ary: Source, stream: CudaStream = 0) -> None:
        """Copies an array of this shape, on the host or a GPU, here, behind the stream's work; done on return."""
        import numpy

        memory, source, handle = self._found(), _foreign.memory_of(ary), _core._stream(stream)
        if memory.is_strided() or source.shape != memory.shape:
            raise ValueError(f"the source has shape {source.shape}, the array {memory.shape}; it must be in C order")
        flat = numpy.ascontiguousarray(_foreign.to_host(source), memory.dtype)
        _driver.copy(memory.address, flat.ctypes.data, flat.nbytes, handle, memory.device)
        _driver.synchronize(handle, memory.device)

    def split(self, section: int, stream: CudaStream = 0) -> list[DeviceView]:
        """Views of `section` elements each, of an array of one axis; the last one may be shorter."""
        m = self._found()
        if len(m.shape) != 1 or m.is_strided():
            raise ValueError("only an array of one axis without gaps can be split")
        parts = [(at, min(section, m.shape[0] - at)) for at in range(0, m.shape[0], section)]
        return [DeviceView(m._replace(address=m.address + at * m.itemsize, shape=(n,))) for at, n in parts]

    def __array__(self, dtype: DType | None = None, copy: bool | None = None) -> NDArray:
        import numpy

        return numpy.asarray(self.copy_to_host(), dtype)

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError(f"a {type(self).__name__} is an address of this process: send a gpushm.Array, or a copy")

    def __repr__(self) -> str:
        what = f"{self._memory.shape} {self._memory.dtype}" if self._memory else "ended"
        return f"<gpushm.numba.{type(self).__name__}: {what}>"


class Mapped(DeviceView):
    """A host array as a GPU sees it, as long as its section lasts: Numba's MappedNDArray. Elements are the host's."""

    __module__ = "gpushm.numba"
    __slots__ = {"host": "The numpy.ndarray."}

    def __init__(self, host: NDArray, address: int) -> None:
        """host: the numpy.ndarray; address: of its first byte, for a GPU."""
        super().__init__(_foreign.memory_of(host)._replace(address=address, on_gpu=True))
        self.host: NDArray = host

    def numpy(self) -> NDArray:
        """The host array itself."""
        return self.host

    def __getitem__(self, key: Any) -> Any:
        return self.host[key]

    def __setitem__(self, key: Any, value: object) -> None:
        self.host[key] = value


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
def pinned(*arylist: HostArray) -> Iterator[None]:
    """Pins host arrays in this section, so that copies to and from a GPU are fast and asynchronous: Numba's
    cuda.pinned().

    arylist: contiguous, writable numpy.ndarrays, and Arrays of host pools; those of pinned pools are always pinned. The
    caller must wait for queued copies before the section ends. DeviceFailed: no driver.
    """
    with ExitStack() as stack:
        for array in arylist:
            stack.enter_context(_registered(array, mapped=False))
        yield


@contextmanager
def mapped(*arylist: HostArray, **kws: Any) -> Iterator[Any]:
    """Lets kernels use host arrays in this section, without a copy: Numba's cuda.mapped().

    Yields a Mapped for each: one alone, more as a list. Otherwise as pinned(). stream= changes nothing.
    """
    import numpy

    if set(kws) - {"stream"}:
        raise TypeError(f"mapped() has one keyword, stream, not {', '.join(sorted(kws))}")
    with ExitStack() as stack:
        made = []
        for array in arylist:
            address = stack.enter_context(_registered(array, mapped=True))
            made.append(Mapped(numpy.asarray(array), address or 0))
            stack.callback(setattr, made[-1], "_memory", None)
        yield made[0] if len(made) == 1 else made
