# SPDX-License-Identifier: MIT
"""Connection's methods and the module's functions that run once and not in a loop: signatures, defaults, help.

The core has a function for each that takes what was read here. open() and open_many() are in C altogether, because
people measure them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import _copy, _core, _show

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import SupportsIndex

    from ._typing import (  # isort: skip
        Access, Array, Attrs, Buffer, CudaStream, Delivery, Device, DTypeLike, Follow, HasShapeAndDType, Order, Shape,
        Source,
    )

_FOREVER = 2**64 - 1  # ms
_DELIVERY = {"at-least-once": 1, "at-most-once": 2}  # enum gpushm_delivery
_FOLLOW = {"every": 1, "latest": 2, "share": 3}  # enum gpushm_follow


def ms(seconds: float | None) -> int:
    """In milliseconds; None, and what is longer than 30 years, are for ever."""
    return _FOREVER if seconds is None or seconds >= 1e9 else int(seconds * 1e3)


def bind(*functions: Callable[..., Any]) -> None:
    """Makes them methods of Connection, and functions of the core that use the process's common connection."""
    for function in functions:
        setattr(_core.Connection, function.__name__, function)
        setattr(_core, function.__name__, getattr(_core._common, function.__name__))


# ---- new buffers ----


def create(
    self: _core.Connection, name: str | None, shape: Shape, dtype: DTypeLike = "uint8", *, pool: str | None = None,
    mode: int = 0o600, order: Order = "C", strides: Shape | None = None, transient: bool = False,
    attrs: Attrs | None = None, wait: float | None = 0, gid: int | None = None, device: Device | None = None,
) -> Array:
    """Makes a buffer of one array, mapped for writing. Others can open it once it is published.

    name: None makes an anonymous buffer. It ends with its last user, and others open it by its handle(), which also
    publishes it as shared.

    shape: an int or a tuple of at most 32; dtype: a name, or whatever numpy.dtype() accepts; strides: in bytes, instead
    of order ('C' or 'F'). pool: None is the daemon's default, a GPU's pool if there is one. mode: who may open it, as
    of a file. transient: the daemon unlinks it when no process has it open. attrs: a dict of str to bytes or str, 4,096
    bytes in all. wait: seconds to wait for memory while the pool is full, None for ever. device: map it for that GPU,
    or 'current' for this thread's, by peer access.

    The contents are zero, or those of an earlier buffer of this user. If this process ends before publish(), the buffer
    is freed. Asks the daemon, which takes some 10 us, without the GIL. Errors: Exists, NotFound (pool), AccessDenied,
    LimitReached, PoolFull, TooLarge, DeviceFailed, DriverError, BadArgument, LayoutError, DaemonGone.
    """
    arrays = [("", (shape, dtype, strides, 0, order))]
    made: Array = _created(self, name, arrays, (pool, mode, transient, attrs, wait, gid, device), 0, True)
    return made


def open_or_create(
    self: _core.Connection, name: str, shape: Shape, dtype: DTypeLike = "uint8", *, access: Access = "r",
    timeout: float | None = None, pool: str | None = None, mode: int = 0o600, transient: bool = False,
    attrs: Attrs | None = None, gid: int | None = None, device: Device | None = None, refuse_dirty: bool = False,
) -> Array:
    """Opens the buffer of that name, or creates it if nobody has: of many processes that call this, one creates it, and
    the others wait until it is published. The one that created it has an Array whose state is 'filling': it fills and
    publishes it. If it ends or closes the Array before that, one of the others creates.

    shape, dtype: of the new Array; the opened one has its own. access: for opening, as of open(). timeout: seconds to
    wait until another process has published it, or until the pool has memory; None for ever. Other threads run
    meanwhile, and Ctrl-C works. Otherwise as open() and create(). Errors: those of both, but for NotFound and Exists of
    the name.
    """
    options = pool, mode, transient, attrs, 0, gid, device, refuse_dirty
    return self._open_or_create(name, [("", (shape, dtype, None, 0))], options, access, timeout)


def create_many(
    self: _core.Connection, name: str | None,
    arrays: Mapping[str, tuple[Shape, DTypeLike] | HasShapeAndDType | Source], *, pool: str | None = None,
    mode: int = 0o600, transient: bool = False, attrs: Attrs | None = None, wait: float | None = 0,
    gid: int | None = None, device: Device | None = None, stream: CudaStream | None = None, nbytes: SupportsIndex = 0,
) -> Buffer:
    """Makes a buffer of many arrays, mapped for writing. arrays: a dict of names to arrays and tensors of any library,
    as a state_dict(), lists or numbers: they are copied, and all copies are waited for once. (shape, dtype), or an
    object that has both and no values, describes an array that is not filled.

    Each array is in C order and starts at a multiple of 256 bytes. The Buffer maps the names to Arrays, also in
    processes that open it. stream: as for Array.copy_from_host(). nbytes: the size of the buffer, 0 for as many bytes
    as the arrays need; Buffer.describe() adds arrays. Otherwise as create().
    """
    values = _described(arrays)
    options = pool, mode, transient, attrs, wait, gid, device
    made: Buffer = _created(self, name, _layouts(values), options, nbytes, False)
    filled = [(key, made[key], v) for key, v in values.items() if _copy.has_values(v)]
    try:
        _copy.fill_many(filled, stream)
    except BaseException:
        for _, array, _ in filled:
            array.close()  # The traceback keeps it.
        made.discard()
        raise
    return made


def _created(
    self: _core.Connection, name: str | None, arrays: list[Any], options: tuple[Any, ...], nbytes: Any, owns: bool
) -> Any:
    """A new buffer. An anonymous one has a random name, which is private unless its mode lets others open it."""
    is_anonymous = name is None
    if is_anonymous:
        name = f"{'' if options[1] & 0o077 else '~/'}anonymous-{os.getpid()}-{os.urandom(8).hex()}"
    return self._create(name, arrays, options, nbytes, owns, is_anonymous)


def _described(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The same with an ndarray for each list or number."""
    return {
        name: value
        if (isinstance(value, tuple) and len(value) == 2) or (hasattr(value, "shape") and hasattr(value, "dtype"))
        else _copy.described(name, value)
        for name, value in arrays.items()
    }


def _layouts(values: Mapping[str, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    """As the core takes them."""
    found = {name: v if isinstance(v, tuple) else (v.shape, v.dtype) for name, v in values.items()}
    return [(name, (shape, dtype, None, 0)) for name, (shape, dtype) in found.items()]


# ---- streams ----


def stream(
    self: _core.Connection, name: str, arrays: Mapping[str, tuple[Shape, DTypeLike] | HasShapeAndDType], *,
    slots: int = 8, readers: int = 8, limit: float | None = 10.0, delivery: Delivery = "at-least-once",
    keep_queue: bool = False, adopt: bool = False, keep: bool = False, pool: str | None = None, mode: int = 0o600,
    attrs: Attrs | None = None, wait: float | None = 0, gid: int | None = None, device: Device | None = None,
    spin: float = 0,
) -> _core.Stream:
    """Makes a stream of frames, whose producer this process is. arrays: a dict of the names of a frame's arrays to
    (shape, dtype), or to objects that have both.

    slots: how many frames its memory holds, 2 to 4,096. readers: how many there may be at a time, up to 64. limit:
    seconds for which a reader may hold up the producer until it is dropped, None for ever. delivery: what happens to
    frames that a 'share' reader held when it died: another one gets them, or with 'at-most-once' nobody. keep_queue:
    frames wait for 'share' readers also while nobody reads so. adopt: if there is such a stream and its producer died,
    continue it; its readers stay. keep: the name stays when the stream is closed. wait: seconds to wait for memory, or
    until a producer that is to be followed is really gone; None for ever. spin: seconds, up to 1, for which frame()
    looks for a slot all the time before it sleeps; 0 is 5 us. Otherwise as create_many().

    close(), the end of its with block or of the program ends the stream. Asks the daemon. Errors: Exists, StateError
    (adopt, and its producer lives), NotSupported (a mempool), and those of create_many().
    """
    if limit is not None and not limit > 0:
        raise ValueError("limit is a number of seconds above 0, or None for no limit")
    if not slots or not readers:
        raise ValueError("0 slots or readers are too few")
    if delivery not in _DELIVERY:
        raise ValueError(f'delivery is "at-least-once" or "at-most-once", not "{delivery}"')
    return self._stream_new(
        name, _layouts(_described(arrays)), (pool, mode, False, attrs, wait, gid, device), slots, readers,
        max(ms(limit), 1), _DELIVERY[delivery], keep_queue, adopt, keep, _spin(spin),
    )


def follow(
    self: _core.Connection, name: str, how: Follow = "latest", *, max_held: int = 1, stream: CudaStream | None = None,
    timeout: float | None = None, wait_for_producer: bool = False, device: Device | None = None, spin: float = 0,
) -> _core.Reader:
    """Joins a stream: a Reader, whose Frames `for` and `async for` take.

    how: 'every' frame, and the producer waits for this reader; the 'latest' one, and it never does; or 'share': each
    frame goes to one of all readers that say so. max_held: how many frames it may hold; the loop releases the oldest
    before it takes one more. stream: the CUDA stream on which frames are used, of any library: a frame is taken while
    its producer's GPU still works on it, and is released behind what is queued on the stream then. None: the host waits
    for the producer's GPU, and for this process's work at the release. timeout: seconds to wait for the name and for
    each frame, None for ever. Where an event loop runs in this thread, this call does not wait for the name, but
    `async with` and the first frame do. wait_for_producer: wait for another producer (stream(adopt=True)) where one
    died, instead of ProducerDied. device: as for open(). spin: seconds, up to 1, for which a wait looks for a frame all
    the time before it sleeps, around the time at which the next one is due if they come at a steady pace; 0 is 5 us.
    Not with asyncio.

    'every' begins with the first frame that is published after this call, 'latest' with the newest. Memory is
    read-only. The loop ends when the producer has closed the stream. Errors: as next(), open(), and LimitReached (the
    stream has no place for another reader), NotSupported (no stream).
    """
    if how not in _FOLLOW:
        text = 'follow "every" frame, the "latest" one, or "share" the frames with other readers, not'
        raise ValueError(f'{text} "{how}"')
    if max_held == 0:
        raise ValueError("max_held is 1 or more")
    return self._follow(name, _FOLLOW[how], max_held, stream, timeout, wait_for_producer, device, _spin(spin))


def _spin(seconds: float) -> int:
    """In microseconds; 0 only from 0."""
    if not 0 <= seconds <= 1:
        raise ValueError("spin is a number of seconds from 0 to 1")
    return max(int(seconds * 1e6 + 0.5), 1) if seconds else 0


# ---- names and pools ----


def unlink(self: _core.Connection, name: str, /) -> None:
    """Frees the name at once, and the memory when no process has it open any more. For the owner and admins. Asks the
    daemon. Errors: NotFound, AccessDenied, DaemonGone.
    """
    self._query("unlink", name)


def rename(self: _core.Connection, name: str, new: str, /, *, replace: bool = False) -> None:
    """Gives a published buffer another name, in one step. replace: that may be another buffer's, which loses it in the
    same step; processes that have it open keep it. For the owner and admins. Asks the daemon. Errors: NotFound, Exists,
    NotPublished, AccessDenied, BadArgument, DaemonGone.
    """
    self._query("rename", name, replace, new)


def clean(self: _core.Connection, name: str, /) -> None:
    """Declares a dirty buffer's contents good again, and wakes processes that wait for it. For the owner and admins.
    Asks the daemon. Errors: NotFound, AccessDenied, DaemonGone.
    """
    self._query("clean", name)


def evict(self: _core.Connection, name: str, /) -> None:
    """Gives a buffer's memory back to its pool; its twin keeps the bytes. The name stays, and who opens or resumes the
    buffer next gets it again: gpushm-memory(7). For the owner and admins. Asks the daemon. Errors: NotFound,
    AccessDenied, StateError (not sealed, without a twin, or a process has it mapped), NotSupported, DaemonGone.
    """
    self._query("evict", name)


def make_twin(self: _core.Connection, name: str, pool: str, /) -> None:
    """Copies a sealed buffer's bytes into that pool of the host's memory, so that its own memory can be evicted.

    For the owner. Waits for the copy. Errors: Exists (it has a twin), StateError (not sealed), NotSupported (the pool
    is on a GPU), and those of open() and create().
    """
    self._query("make_twin", name, False, pool)


def set_keep(self: _core.Connection, name: str, seconds: float | None, /, *, priority: int = 0) -> None:
    """How long the memory of a buffer that has a twin stays after its last use while its owner needs memory for others:
    0: not at all, None: for ever. The default is the daemon's. priority: of buffers that are in use, those that have
    less are asked for first.

    For the owner and admins. Asks the daemon. Errors: NotFound, AccessDenied, StateError (no twin), DaemonGone.
    """
    if seconds is not None and not seconds >= 0:
        raise ValueError("a buffer is kept for a number of seconds, or for ever with None")
    self._query("set_keep", name, False, None, 0, ms(seconds), priority)


def may_park(self: _core.Connection, unless: str | None = None, /) -> None:
    """Says that this process may be parked: that it has nothing of other processes' on a GPU but what gpushm knows, no
    CUDA IPC handle, and no NCCL communicator. unless: why it may not, from now on. gpushm-memory(7) has the rules. Asks
    the daemon. Errors: NotSupported, BadArgument, DaemonGone.
    """
    self._query("may_park", unless)


def park(self: _core.Connection, pid: int, /, *, timeout: float = 10, kill_stuck: bool = False) -> None:
    """Parks another process of this user: asks it to suspend all, and has the driver freeze it, so that it takes no
    memory of a GPU until unpark(). Both wait for that many seconds; other threads run meanwhile. kill_stuck: kill it if
    the driver does not come back, as it never may then. Errors, and it runs as before: NotFound, StateError (it has not
    suspended all), NotSupported (it has not promised may_park(), or has a stream or a mempool), DriverError,
    AccessDenied (PID namespaces). Timeout: the driver does not come back.
    """
    self._query("park", None, kill_stuck, None, 0, int(timeout * 1e3), pid)


def unpark(self: _core.Connection, pid: int, /, *, timeout: float = 10, kill_stuck: bool = False) -> None:
    """Lets a process run again that was parked: as park(). One that runs goes on."""
    self._query("unpark", None, kill_stuck, None, 0, int(timeout * 1e3), pid)


def flush(self: _core.Connection, pool: str | None = None, /) -> None:
    """Returns a pool's freed memory, which waits for reuse, to the driver; None: that of every pool in which this user
    may create. Waits for the driver. Errors: NotFound, AccessDenied.
    """
    self._query("flush", pool)


def wait(self: _core.Connection, name: str, timeout: float | None = None) -> None:
    """Waits until the name is published, without attaching: at most that many seconds, None for ever. Other threads run
    meanwhile, and Ctrl-C works. Errors: Timeout, NotFound or NotPublished (timeout 0), DaemonGone.
    """
    self._query("wait", name, False, None, timeout)


# ---- information ----


def ls(self: _core.Connection, prefix: str | None = None, *, holders: bool = False) -> _show.Table[_core.BufferInfo]:
    """The buffers that this user may see and whose names start with the prefix: a list of BufferInfo that prints as a
    table.

    holders: also the processes that have each open, for its owner and admins. Asks the daemon.
    """
    return _show.Table(self._query("ls", prefix, holders), "buffers")


def streams(self: _core.Connection, prefix: str | None = None) -> _show.Table[_core.StreamInfo]:
    """The streams that this user may see and whose names start with the prefix: a list of StreamInfo, with their
    readers, that prints as a table. Asks the daemon.
    """
    return _show.Table(self._query("streams", prefix), "streams")


def stat(self: _core.Connection, name: str, *, holders: bool = False) -> _core.BufferInfo:
    """The BufferInfo of one buffer, with its attributes. Asks the daemon. Errors: NotFound, NotPublished,
    AccessDenied.
    """
    found: _core.BufferInfo = self._query("stat", name, holders)
    return found


def pools(self: _core.Connection) -> _show.Table[_core.PoolInfo]:
    """The pools of memory: a list of PoolInfo that prints as a table. Asks the daemon."""
    return _show.Table(self._query("pools"), "pools")


def status(self: _core.Connection) -> _core.Status:
    """The daemon's Status, with this user's Usage. Asks the daemon."""
    found: _core.Status = self._query("status")
    return found


bind(create, open_or_create, create_many, stream, follow, unlink, rename, clean, flush, wait)
bind(evict, make_twin, set_keep, may_park, park, unpark)
bind(ls, streams, stat, pools, status)
