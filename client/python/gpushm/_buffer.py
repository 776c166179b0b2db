# SPDX-License-Identifier: MIT
"""gpushm.Buffer: the core's buffer."""

from __future__ import annotations

from typing import Any

from . import _core, _handle, _show


class Buffer(_core.Buffer):
    """A buffer as this process has it open: a mapping of names to Arrays.

    close(), the end of a with block, or the end of the last reference to it and its arrays gives it back.
    """

    __slots__ = ()

    def unlink(self) -> None:
        """Frees the name at once; the memory goes when nobody has it open any more."""
        self.connection.unlink(self.name)

    def handle(self) -> _handle.Handle:
        """What another process opens this buffer by; it can be pickled. The Buffer itself pickles as its handle,
        once it is published, and is open where it arrives.
        """
        return _handle.handle_of(self)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _handle.reduce(self)

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a deep copy of a gpushm.Buffer wants a name: create_many(name, buffer) and copies")

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
