# SPDX-License-Identifier: MIT
"""Host memory that a GPU reaches: arrays of pinned pools, and sections that pin memory which is there already."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from . import _core, _driver, _host


def pinned_array(shape: Any, dtype: Any = "uint8", *, name: str | None = None, **options: Any) -> Any:
    """An Array in pinned host memory, which CPU and GPU use at once: Numba's pinned_array() and mapped_array().

    numpy() of it is the ndarray, __cuda_array_interface__ and DLPack are the GPU's view of the same bytes. pool: the
    first pinned one, unless told. name None: a name of this process's own, which goes with it; with a name others can
    open it once it is published. Otherwise as create(). NotFound: the daemon has no pinned pool, because it has no GPU.
    """
    options.setdefault("pool", _pinned_pool() if options.get("pool") is None else options["pool"])
    if name is None:
        name = f"~/pinned-{os.getpid()}-{secrets.token_hex(6)}"
        options.setdefault("transient", True)
    return _core.create(name, shape, dtype, **options)


def pinned_array_like(like: Any, *, name: str | None = None, **options: Any) -> Any:
    """pinned_array() with the shape, dtype and order of another array."""
    from ._create import order_of

    options.setdefault("order", order_of(like))
    return pinned_array(like.shape, like.dtype, name=name, **options)


mapped_array = pinned_array
mapped_array_like = pinned_array_like


def _pinned_pool() -> str:
    import errno

    for pool in _core.pools():
        if pool.kind == "pinned" and pool.allowed and not pool.failed:
            return str(pool.name)
    raise _core.NotFound(errno.ENOENT, 'the daemon has no pinned pool: it has no GPU; pool="host" is without one')


# ---- memory that is there ----


def _memory(array: Any) -> Any:
    """A contiguous array on the host as a numpy.ndarray, which keeps the memory."""
    import numpy

    found = numpy.asarray(array)
    if not found.flags.forc:
        raise ValueError("only contiguous arrays can be pinned: pages are, not elements")
    if found is not array and not isinstance(array, _core.Array) and not numpy.shares_memory(found, array):
        raise TypeError(f"{type(array).__name__} has no memory that could be pinned: numpy.ndarray has")
    return found


def _is_pinned(array: Any) -> bool:
    return isinstance(array, _core.Array) and array.kind == "pinned"


@contextmanager
def _registered(array: Any, mapped: bool) -> Iterator[int | None]:
    """Gives the GPU's address, where mapped."""
    if isinstance(array, _core.Array) and not _host.on_host(array):
        raise TypeError(f"buffer {array.name!r} is on a GPU: there is nothing to pin")
    memory = _memory(array)
    address = memory.ctypes.data
    if _is_pinned(array) or memory.nbytes == 0:
        yield address
        return
    device = _driver.register(address, memory.nbytes, mapped=mapped)
    try:
        yield device
    finally:
        _driver.unregister(address)


@contextmanager
def pinned(*arrays: Any) -> Iterator[None]:
    """Host arrays are pinned in this section, so that copies to and from a GPU are fast and really asynchronous:
    Numba's cuda.pinned().

    numpy.ndarrays, contiguous and writable, and Arrays of host pools; those of pinned pools are already. The caller
    waits for the copies that he has queued before the section ends. DeviceFailed: no driver.
    """
    with ExitStack() as stack:
        for array in arrays:
            stack.enter_context(_registered(array, mapped=False))
        yield


class Mapped:
    """A host array as a GPU sees it, for as long as its section lasts: Numba's MappedNDArray."""

    __slots__ = ("_address", "host")

    def __init__(self, host: Any, address: int) -> None:
        """host: the numpy.ndarray; address: where its first byte is for a GPU."""
        self.host = host
        self._address: int | None = address

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        if self._address is None:
            raise AttributeError("the section of mapped() has ended, and the GPU can't reach the array any more")
        told = dict(self.host.__array_interface__)
        told["data"] = (self._address if self.host.size else 0, not self.host.flags.writeable)
        told["version"] = 3
        told["stream"] = None
        return told

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements along each axis."""
        return tuple(self.host.shape)

    @property
    def dtype(self) -> Any:
        """The numpy.dtype."""
        return self.host.dtype

    def numpy(self) -> Any:
        """The host array itself."""
        return self.host

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        import numpy

        return numpy.array(self.host, dtype, copy=copy)

    def __getitem__(self, key: Any) -> Any:
        return self.host[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.host[key] = value

    def __reduce__(self) -> tuple[Any, ...]:
        raise TypeError("a gpushm.Mapped is an address of this process: send its numpy(), or a gpushm.Array")

    def __repr__(self) -> str:
        return f"<gpushm.Mapped {self.shape} {self.dtype}{'' if self._address is not None else ', ended'}>"


@contextmanager
def mapped(*arrays: Any) -> Iterator[Any]:
    """Host arrays can be used by kernels in this section, in place: Numba's cuda.mapped().

    Gives a Mapped for each, alone where there is one. Otherwise as pinned().
    """
    import numpy

    with ExitStack() as stack:
        made = []
        for array in arrays:
            address = stack.enter_context(_registered(array, mapped=True))
            made.append(Mapped(numpy.asarray(array), address or 0))
            stack.callback(setattr, made[-1], "_address", None)
        yield made[0] if len(made) == 1 else made
