# SPDX-License-Identifier: MIT
"""gpushm.Array: the core's array, and what NumPy makes comfortable."""

from __future__ import annotations

from typing import Any

from . import _core, _handle, _host, _show


class Array(_core.Array):
    """A typed, strided array in a buffer, or a view of one.

    create() and open() return one that owns its buffer: close(), or the end of a with block, gives the buffer
    back. Views share the memory and keep the buffer open.

    NumPy, CuPy, PyTorch, Numba and JAX take it as it is, without a copy: through DLPack, the CUDA Array
    Interface, or, in host and pinned memory, the buffer protocol.
    """

    __slots__ = ()

    # ---- the host ----

    def numpy(self) -> Any:
        """A numpy.ndarray over the same memory, of host and pinned arrays; it keeps the buffer open.

        TypeError for memory on a GPU: copy_to_host() copies it.
        """
        return _host.as_numpy(self)

    def copy_to_host(self, out: Any = None, stream: Any = None) -> Any:
        """Copies the array to the host and returns the copy.

        out: an object with the buffer protocol, or a numpy.ndarray, of this shape and dtype and any strides;
        None: a new numpy.ndarray in C order. stream: a CUDA stream to queue the copy on, and then `out` must
        stay until the stream has passed it; None or 0: done on return. Other threads run meanwhile.
        """
        return _host.copy_to_host(self, out, stream)

    def copy_from_host(self, source: Any, stream: Any = None) -> None:
        """Fills the array from the host: from anything that numpy.asarray() takes, broadcast to this shape.

        stream: a CUDA stream to queue the copy on, and then `source` must stay until the stream has passed it (a
        source that has to be converted first is waited for); None or 0: done on return. Errors: ReadOnly, ValueError
        (shapes), TypeError (a dtype that does not fit).
        """
        _host.copy_from_host(self, source, stream)

    def copy_to_device(self, source: Any, stream: Any = None) -> None:
        """Fills the array from another one, on a GPU or the host: Numba's DeviceNDArray.copy_to_device()."""
        _host.copy_to_device(self, source, stream)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return _host.to_array(self, dtype, copy)

    # ---- elements ----

    def __getitem__(self, key: Any) -> Any:
        """A view; an element, where integers name one; a field's view, where a str does."""
        return _host.get(self, key)

    def __setitem__(self, key: Any, value: Any) -> None:
        """Copies what NumPy can broadcast, or another array, into the view."""
        _host.put(self, key, value)

    @property
    def flags(self) -> dict[str, bool]:
        """C_CONTIGUOUS, F_CONTIGUOUS, WRITEABLE and OWNDATA, as NumPy calls them."""
        return {
            "C_CONTIGUOUS": self.is_c_contiguous(),
            "F_CONTIGUOUS": self.is_f_contiguous(),
            "WRITEABLE": not self.readonly,
            "OWNDATA": self.owns_buffer,
        }

    # ---- the name ----

    def unlink(self) -> None:
        """Frees the buffer's name at once; the memory goes when nobody has it open any more."""
        self.buffer.connection.unlink(self.name)

    # ---- for other processes ----

    def handle(self) -> _handle.Handle:
        """What another process opens this array, or view, by; it can be pickled. The array itself pickles as its
        handle, once it is published, and is open where it arrives.
        """
        return _handle.handle_of(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _handle.reduce(self)

    def __copy__(self) -> Any:
        return self[...]

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a deep copy of a gpushm.Array wants a name: gpushm.to_device(array, name); or copy_to_host()")

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
            f"{', read-only' if self.readonly else ''}{dirty}>"
        )
