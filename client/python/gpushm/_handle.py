# SPDX-License-Identifier: MIT
"""Handles: objects that can be pickled, by which another process opens the same array.

A handle has a buffer's name and number, and the layout of an array or of a view. It keeps no memory: that lives as long
as the buffer has its name or a process has it open.

Arrays and Buffers are pickled as their handles. So they can be sent through multiprocessing's queues, pipes and pools,
and are open when they arrive.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, overload
from weakref import WeakValueDictionary

from . import _core, _dtype

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ._typing import Access, Array, Buffer, Device, DType, Layout

    # What open() returns.
    Opened = TypeVar("Opened", bound="Array | Buffer", default="Array", covariant=True)
else:
    from typing import TypeVar

    Opened = TypeVar("Opened")


class Handle(Generic[Opened]):
    """Names an array or a view, or all arrays, of a buffer, without opening it.

    handle() of an Array or a Buffer makes one. `with handle as a:` opens it and closes it again; open() may be called
    any number of times, in every process that may open the buffer, also in the one that made the handle.
    """

    __module__ = "gpushm.types"
    __slots__ = {
        "_entered": "What with blocks have opened.",
        "_layout": "As __init__() takes it.",
        "_opened": "What open() has returned, while it lives.",
        "access": "'r' or 'r+': what open() asks for.",
        "id": "The buffer's id.",
        "maker": "The process and the user that made an anonymous buffer; None: it has a name.",
        "name": "The buffer's name.",
        "size": "In bytes: of the array, or of the whole buffer.",
        "socket": "The path of the daemon's socket; None: by the rule of connect().",
    }

    def __init__(
        self,
        name: str,
        id: int,
        access: Access = "r",
        layout: Layout | None = None,
        socket: str | None = None,
        size: int | None = None,
        maker: Sequence[int] | None = None,
    ) -> None:
        """layout None: the whole buffer. size: in bytes. maker: the process and the user that made an anonymous buffer;
        None: it has a name. Use handle() of an Array or a Buffer to make one.
        """
        self.name: str = name
        self.id: int = id
        self.access: Access = access
        self.socket: str | None = socket
        self.size: int | None = size
        self.maker: Sequence[int] | None = maker
        self._layout = layout
        # By their id(): == of Arrays compares elements.
        self._opened: WeakValueDictionary[int, Array | Buffer] = WeakValueDictionary()
        self._entered: list[Opened] = []

    @property
    def base(self) -> Array | None:
        """The Array that the handle keeps: None, because only an IpcArrayHandle keeps one."""
        return None

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The array's shape; None: the handle names a whole buffer."""
        return self._layout["shape"] if self._layout else None

    @property
    def dtype(self) -> DType | None:
        """The array's dtype; None: the handle names a whole buffer."""
        return _dtype.decode(self._layout["dtype"], self._layout["descr"]) if self._layout else None

    def open(
        self,
        access: Access | None = None,
        timeout: float | None = 0,
        *,
        device: Device | None = None,
    ) -> Opened:
        """Attaches: an Array with the handle's layout, or a Buffer. Copies nothing.

        access: 'r', 'r+' or 'c'; None: that of the array or buffer whose handle this is. timeout: seconds to wait until
        the buffer is published, None for ever. device: map it for that GPU, or for the "current" one. Errors: as
        gpushm.open(); NotFound also where the name now belongs to another buffer, or the last process has closed an
        anonymous one.
        """
        opened: Opened = self._attach(access, timeout, device, **self._overrides())
        self._opened[id(opened)] = opened
        return opened

    def _attach(
        self,
        access: Access | None = None,
        timeout: float | None = 0,
        device: Device | None = None,
        **layout: Any,
    ) -> Any:
        """open() with another layout; without one, a Buffer."""
        connection = _connection_to(self.socket) if self.socket else _core
        arguments = self.name, access or self.access, timeout
        try:
            if layout:
                opened = connection.open(*arguments, device=device, **layout)
                buffer = opened.buffer
            else:
                opened = buffer = connection.open_many(*arguments, device=device)
        except _core.NotFound:
            if self.maker is None:
                raise
            raise _core.NotFound(errno.ENOENT, self._why_gone(*self.maker)) from None
        if buffer.id != self.id:
            opened.close()
            raise _core.NotFound(
                errno.ENOENT, f'buffer "{self.name}" is another one by now: the one of this handle was unlinked'
            )
        return opened

    def _own_device(self) -> int | None:
        """The GPU that has the memory: for opens that mean this one, and shall not warn of it."""
        connection = _connection_to(self.socket) if self.socket else _core
        try:
            pool = connection.stat(self.name).pool
        except _core.NotFound:
            return None  # The open that follows says why.
        return next((p.device for p in connection.pools() if p.name == pool), None)

    def _overrides(self) -> dict[str, Any]:
        """The layout as open() and Buffer.array() take it; empty for a whole buffer."""
        if self._layout is None:
            return {}
        layout = self._layout
        dtype = layout["dtype"] if layout["descr"] is None else self.dtype
        return {"shape": layout["shape"], "dtype": dtype, "strides": layout["strides"], "offset": layout["offset"]}

    def _why_gone(self, pid: int, uid: int) -> str:
        if self.name.startswith("~/") and uid != os.getuid():
            return f"an anonymous buffer of user {uid} is private: create it with a mode that lets others open it"
        return (
            f"an anonymous buffer is gone: process {pid}, which made it, has closed it or has ended. Keep it open "
            "there until other processes have opened its handle, or create it with a name"
        )

    def close(self) -> None:
        """Closes all that this handle has opened in this process. Errors: as Array.close()."""
        for key, opened in list(self._opened.items()):
            opened.close()
            self._opened.pop(key, None)

    def __enter__(self) -> Opened:
        """open()."""
        self._entered.append(self.open())
        return self._entered[-1]

    def __exit__(self, *raised: object) -> None:
        """The end of what __enter__() has opened, as the end of its own with block."""
        self._entered.pop().__exit__(*raised)

    def _state(self) -> tuple[Any, ...]:
        """What __init__() takes."""
        return self.name, self.id, self.access, self._layout, self.socket, self.size, self.maker

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self._state()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.name, self.id))

    def __repr__(self) -> str:
        what = f"{self.shape} {self._layout['dtype']}" if self._layout else "all arrays"
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r} {what}, {self.access!r}>"


# A process's connections to other daemons than its common one, as long as anything that they opened is alive.
_connections: WeakValueDictionary[tuple[int, str], _core.Connection] = WeakValueDictionary()


def _connection_to(socket: str) -> _core.Connection:
    key = os.getpid(), socket
    found = _connections.get(key)
    if found is None or found.closed:
        found = _connections[key] = _core.Connection(socket)
    return found


def _layout_of(array: Array) -> Layout:
    return {
        "shape": array.shape,
        "dtype": array.dtype_name,
        "descr": array.descr,
        "strides": array.strides if array.itemsize else None,
        "offset": array.offset,
    }


@overload
def handle_of(thing: Array) -> Handle[Array]: ...
@overload
def handle_of(thing: Buffer) -> Handle[Buffer]: ...
def handle_of(thing: Array | Buffer) -> Handle[Array | Buffer]:
    """The Handle of an Array or a Buffer. Publishes an anonymous buffer, which can be opened in no other way."""
    buffer, layout = (thing, None) if isinstance(thing, _core.Buffer) else (thing.buffer, _layout_of(thing))
    if buffer._of_stream:
        raise TypeError(f'"{buffer.name}" is a stream, whose frames can\'t be sent: follow("{buffer.name}") takes them')
    if buffer.anonymous:
        _publish_once(buffer)
    # A buffer that is being filled will probably be sealed.
    access: Access = "r" if buffer.state != "shared" or buffer.readonly else "r+"
    if buffer.access == "c":
        access = "c"
    socket = buffer.connection.socket
    maker = (os.getpid(), os.getuid()) if buffer.anonymous else None
    return Handle(
        buffer.name, buffer.id, access, layout, os.path.abspath(socket) if socket else None, thing.nbytes, maker
    )


def _publish_once(buffer: _core.Buffer) -> None:
    """Publishes an anonymous buffer, unless it is published. Queues pickle in threads of their own, so another thread
    may do so meanwhile: publish() waits for that one, and then refuses.
    """
    try:
        if buffer.state == "filling":
            buffer.publish("shared")
    except _core.StateError:
        if buffer.state == "filling":
            raise


def reduce(thing: Array | Buffer) -> tuple[Any, ...]:
    """__reduce__() of both: the handle, opened where it is unpickled."""
    if thing.state == "filling" and not thing.anonymous:
        raise _core.StateError(
            errno.EBUSY, f'buffer "{thing.name}" can\'t be sent before it is published: nobody else could open it'
        )
    if thing.access == "c":
        raise TypeError(
            f'buffer "{thing.name}" is open copy-on-write, and what was written to it is this process\'s alone: send a '
            "copy (copy_to_host()), or the handle(), by which others get it as it was published"
        )
    return _arrived, (handle_of(thing),)


def _arrived(handle: Handle[Array | Buffer]) -> Array | Buffer:
    return handle.open()
