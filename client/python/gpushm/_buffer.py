# SPDX-License-Identifier: MIT
"""gpushm.Buffer: the core's buffer."""

from __future__ import annotations

from . import _core


class Buffer(_core.Buffer):
    """A buffer as this process has it open: a mapping of names to Arrays.

    close(), the end of a with block, or the end of the last reference to it and its arrays gives it back.
    """

    __slots__ = ()

    def unlink(self) -> None:
        """Frees the name at once; the memory goes when nobody has it open any more."""
        self.connection.unlink(self.name)

    def __repr__(self) -> str:
        if self.closed:
            return "<gpushm.Buffer, closed>"
        arrays = len(self)
        return (
            f"<gpushm.Buffer {self.name!r}: {arrays} {'array' if arrays == 1 else 'arrays'}, {self.nbytes} bytes, "
            f"{self.state} in pool {self.pool!r}>"
        )
