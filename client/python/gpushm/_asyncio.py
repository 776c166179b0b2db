# SPDX-License-Identifier: MIT
"""Waiting in an event loop, without a thread and without polling: the loop's own poll() has the descriptor of a request
to the daemon, of a Watch, or of one side of a stream.
"""

from __future__ import annotations

import errno
import os
import sys
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    import asyncio
    from typing import Any, Unpack

    from ._typing import Access, Array, CudaStream, OpenOptions


async def next_event(watch: _core.Watch) -> _core.Event:
    """A Watch's next Event, for `async for`. If several tasks wait, one of them gets it."""
    while True:
        try:
            return watch.next(0)
        except _core.Timeout:
            pass
        await _readable(watch)


async def _readable(source: _core.Watch | _core._Side) -> None:
    """Returns when its descriptor is readable. It can't be closed meanwhile."""
    # A loop allows one reader for each descriptor, so each task uses a copy.
    fd = os.dup(source.fileno())
    source._hold()
    try:
        await _readable_fd(fd)
    finally:
        os.close(fd)
        source._release()


async def _readable_fd(fd: int) -> None:
    # At the top it would double the time of `import gpushm`; a caller of this has imported it.
    import asyncio

    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(fd, _wake, readable)
    try:
        await readable
    finally:
        loop.remove_reader(fd)


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def _result(call: _core._Call) -> Any:
    """What the request brings. A task that is cancelled ends it."""
    try:
        while (found := call.process()) is None:
            await _readable_fd(call.fileno())
        return found
    finally:
        call.close()


async def wait_async(
    name: str, timeout: float | None = None, *, connection: _core.Connection | None = None
) -> None:
    """wait() for asyncio: returns when the name is published. timeout: in seconds, None for ever.

    Other tasks run meanwhile, also while the daemon does not reply, and it can be cancelled. connection: a Connection,
    to use another daemon. Errors: Timeout, DaemonGone.
    """
    await _result((connection or _core)._send_wait(name, timeout))


async def open_async(
    name: str,
    access: Access = "r",
    timeout: float | None = None,
    *,
    connection: _core.Connection | None = None,
    **options: Unpack[OpenOptions],
) -> Array:
    """open() for asyncio: waits as wait_async() does. The Array has a connection to the daemon of its own. It does not
    wait until a buffer is clean: refuse_dirty raises Dirty at once. Otherwise as open().
    """
    if options.get("refuse_dirty"):
        await wait_async(name, timeout, connection=connection)
    array: Array = await _result((connection or _core)._send_open(name, access, timeout, **options))
    return array


# ---- streams ----


def is_running() -> bool:
    """Whether an event loop runs in this thread."""
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


async def _join(reader: _core.Reader) -> _core.Reader:
    """The reader itself, which waits until it has joined."""
    import asyncio

    timeout = reader._timeout
    try:
        async with asyncio.timeout(timeout):
            while not reader._join_now():
                await wait_async(reader.name, connection=reader.connection)
        return reader
    except TimeoutError as e:
        raise _timed_out(e, f'stream "{reader.name}" was not there in {timeout} s') from None


async def next_frame(reader: _core.Reader, timeout: float | None, loops: bool = True) -> _core.Frame:
    """A Reader's next Frame. loops: the end of the stream ends an `async for`."""
    import asyncio

    try:
        # Most frames are there already: asyncio.timeout() would cost more than the rest.
        frame = reader._take_now()
        if frame is not None:
            return frame
        async with asyncio.timeout(timeout):
            while frame is None:
                if reader.joined:
                    await _readable(reader)
                else:
                    await wait_async(reader.name, connection=reader.connection)
                frame = reader._take_now()
            return frame
    except _core.StreamEnded:
        if loops:
            raise StopAsyncIteration from None
        raise
    except TimeoutError as e:
        raise _timed_out(e, f'stream "{reader.name}": there was no frame in {timeout} s') from None


async def _leave(reader: _core.Reader, /, *raised: object) -> None:
    """close()."""
    reader.close()


async def next_async(self: _core.Reader, timeout: Any = ...) -> _core.Frame:
    """next() for asyncio. Other tasks run meanwhile."""
    return await next_frame(self, self._timeout if timeout is ... else timeout, loops=False)


async def frame_async(
    self: _core.Stream, stream: CudaStream | None = None, *, timeout: float | None = None
) -> _core.Frame:
    """frame() for asyncio: `with await s.frame_async() as f`. Other tasks run meanwhile."""
    import asyncio

    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return self.frame(stream, timeout=0)
                except _core.Timeout:
                    await _readable(self)
    except TimeoutError as e:
        raise _timed_out(e, f'stream "{self.name}": no slot was free in {timeout} s') from None


def _timed_out(e: TimeoutError, text: str) -> TimeoutError:
    return e if isinstance(e, _core.Error) else _core.Timeout(errno.ETIMEDOUT, text)


for _type, _name, _method in (
    (_core.Reader, "__aenter__", _join), (_core.Reader, "__aexit__", _leave), (_core.Reader, "next_async", next_async),
    (_core.Stream, "frame_async", frame_async),
):
    setattr(_type, _name, _method)
