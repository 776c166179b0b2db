# SPDX-License-Identifier: MIT
"""Handles: objects that can be pickled, by which another process opens the same array.

A handle is the bytes of gpushm_array_handle(): a buffer's name and id, and the layout of an array or of a view. It
keeps no memory: that lives as long as the buffer has its name or a process has it open.

Arrays and Buffers are pickled as their handles. So they can be sent through multiprocessing's queues, pipes and pools,
and are open when they arrive.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, overload
from weakref import WeakValueDictionary, ref

from . import _core, _dtype

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ._typing import Access, Array, Buffer, Device, DType

    # What open() returns.
    Opened = TypeVar("Opened", bound="Array | Buffer", default="Array", covariant=True)
else:
    from typing import TypeVar

    Opened = TypeVar("Opened")


class Handle(Generic[Opened]):
    """Names an array or a view, or all arrays, of a buffer, without opening it.

    handle() of an Array or a Buffer makes one, and Handle(data) one of the bytes of another, which C, too, may have
    made. `with handle as a:` opens it and closes it again; open() may be called any number of times, in every process
    that may open the buffer, also in the one that made the handle.
    """

    __module__ = "gpushm.types"
    __slots__ = {
        "_bytes": "Of gpushm_array_handle() or gpushm_buffer_handle().",
        "_entered": "What with blocks have opened.",
        "_layout": "Of the array, as open() takes it; None: the whole buffer.",
        "_opened": "What open() has returned, while it lives.",
        "_uid": "The uid of the user that created the buffer.",
        "access": "'r', 'r+' or 'c': what open() asks for.",
        "base": "The Array that the handle keeps: only an IpcArrayHandle keeps one.",
        "id": "The buffer's id.",
        "name": "The buffer's name.",
        "size": "In bytes: of the array, or of the whole buffer.",
        "socket": "The path of the daemon's socket; None: by the rule of connect().",
    }

    def __init__(self, data: Iterable[int], *of_earlier: object) -> None:
        """data: bytes(handle) of another, as bytes or numbers. ValueError: these are other bytes."""
        if of_earlier:
            raise ValueError("gpushm 0.2 has pickled this handle, and 0.3 does not read it: upgrade both processes")
        self.name: str
        self.id: int
        self.access: Access
        self.socket: str | None
        self.size: int
        try:
            self._bytes = bytes(data)
            self.name, self.id, self.access, self.socket, self.size, self._uid, layout = _core._read_handle(self._bytes)
            self._layout = _keywords(*layout) if layout else None
        except _core.Error:
            raise
        except (ValueError, TypeError, SyntaxError, MemoryError):
            raise ValueError("these bytes are no handle of gpushm") from None
        self.base: Array | None = None
        # By their id(): == of Arrays compares elements.
        self._opened: dict[int, ref[Array | Buffer]] = {}
        self._entered: list[Opened] = []

    def __bytes__(self) -> bytes:
        return self._bytes

    @property
    def shape(self) -> tuple[int, ...] | None:
        """The array's shape; None: the handle names a whole buffer."""
        return self._layout["shape"] if self._layout else None

    @property
    def dtype(self) -> DType | None:
        """The array's dtype; None: a whole buffer, or a record of so many fields that the buffer alone has them."""
        found = self._layout.get("dtype") if self._layout else None
        return _dtype.decode(found, None) if isinstance(found, str) else found

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
        connection: Any = _connection_to(self.socket) if self.socket else _core
        call = connection.open_many if self._layout is None else connection.open
        try:
            opened: Opened = call(self.name, access or self.access, timeout, device=device, **self._layout or {})
        except _core.NotFound:
            maker = re.fullmatch(r"(?:~/)?anonymous-(\d+)-[0-9a-f]{16}", self.name)
            if maker is None:
                raise
            raise _core.NotFound(errno.ENOENT, self._why_gone(maker[1])) from None
        self._opened[id(opened)] = ref(check_id(opened, self.name, self.id))
        return opened

    def _own_device(self) -> int | None:
        """The GPU that has the memory: for opens that mean this one, and shall not warn of it."""
        connection = _connection_to(self.socket) if self.socket else _core
        try:
            pool = connection.stat(self.name).pool
        except _core.NotFound:
            return None  # The open that follows says why.
        return next((p.device for p in connection.pools() if p.name == pool), None)

    def _why_gone(self, pid: str) -> str:
        if self.name.startswith("~/") and self._uid != os.getuid():
            return f"an anonymous buffer of user {self._uid} is private: create it with a mode that lets others open it"
        return (
            f"an anonymous buffer is gone: process {pid}, which made it, has closed it or has ended. Keep it open "
            "there until other processes have opened its handle, or create it with a name"
        )

    def close(self) -> None:
        """Closes all that this handle has opened in this process. Errors: as Array.close()."""
        for key, found in list(self._opened.items()):
            if (opened := found()) is not None:
                opened.close()
            self._opened.pop(key, None)

    def __enter__(self) -> Opened:
        """open()."""
        self._entered.append(self.open())
        return self._entered[-1]

    def __exit__(self, *raised: object) -> None:
        """The end of what __enter__() has opened, as the end of its own with block."""
        self._entered.pop().__exit__(*raised)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self._bytes,)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Handle) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.name, self.id))

    def __repr__(self) -> str:
        what = f"{self.shape} {self._layout.get('dtype', 'record')}" if self._layout else "all arrays"
        return f"<{type(self).__module__}.{type(self).__name__} {self.name!r} {what}, {self.access!r}>"


def check_id(opened: Any, name: str, id: int) -> Any:
    """The Array or Buffer, if it is the one with that id; else it is closed. NotFound."""
    if getattr(opened, "buffer", opened).id != id:
        opened.close()
        raise _core.NotFound(
            errno.ENOENT, f'buffer "{name}" is another one by now: the one of this handle was unlinked'
        )
    return opened


def _keywords(
    array: str | None, dtype: str, descr: str | None, shape: Any, strides: Any, offset: int
) -> dict[str, Any]:
    """A layout as open() takes it."""
    described = {"dtype": _dtype.of(dtype, descr)} if array is None else {"array": array}
    return described | {"shape": shape, "strides": strides, "offset": offset}


# A process's connections to other daemons than its common one, as long as anything that they opened is alive.
_connections: WeakValueDictionary[tuple[int, str], _core.Connection] = WeakValueDictionary()


def _connection_to(socket: str) -> _core.Connection:
    key = os.getpid(), socket
    found = _connections.get(key)
    if found is None or found.closed:
        found = _connections[key] = _core.Connection(socket)
    return found


@overload
def handle_of(thing: Array) -> Handle[Array]: ...
@overload
def handle_of(thing: Buffer) -> Handle[Buffer]: ...
def handle_of(thing: Array | Buffer) -> Handle[Array | Buffer]:
    """The Handle of an Array or a Buffer. Publishes an anonymous buffer, which can be opened in no other way."""
    buffer = thing if isinstance(thing, _core.Buffer) else thing.buffer
    if buffer.anonymous:
        _publish_once(buffer)
    return Handle(_core._handle_bytes(thing))


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
