# SPDX-License-Identifier: MIT
"""Waiting in an event loop, without a thread and without polling: the loop's own poll() has the descriptor of a Watch,
or of one side of a stream.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    import asyncio
    from typing import Unpack

    from ._typing import Access, Array, OpenOptions, Stream


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
    # At the top it would double the time of `import gpushm`; a caller of this has imported it.
    import asyncio

    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    # A loop allows one reader for each descriptor, so each task uses a copy.
    fd = os.dup(source.fileno())
    source._hold()
    try:
        loop.add_reader(fd, _wake, readable)
        await readable
    finally:
        loop.remove_reader(fd)
        os.close(fd)
        source._release()


def _wake(readable: asyncio.Future[None]) -> None:
    if not readable.done():
        readable.set_result(None)


async def wait_async(
    name: str, timeout: float | None = None, *, connection: _core.Connection | None = None
) -> None:
    """wait() for asyncio: returns when the name is published. timeout: in seconds, None for ever.

    Other tasks run meanwhile, and it can be cancelled. connection: a Connection, to use another daemon. Errors:
    Timeout, DaemonGone.
    """
    import asyncio

    wait, watching = (connection.wait, connection.watch) if connection else (_core.wait, _core.watch)
    try:
        wait(name, 0)
    except (_core.NotFound, _core.NotPublished, _core.Timeout):
        pass
    else:
        return
    with watching(name) as watch:
        try:
            async with asyncio.timeout(timeout):
                while (await next_event(watch)).what != "published":
                    pass
        except TimeoutError as e:
            if isinstance(e, _core.Error):
                raise
            raise _late(name, timeout) from None


async def open_async(
    name: str,
    access: Access = "r",
    timeout: float | None = None,
    *,
    connection: _core.Connection | None = None,
    **options: Unpack[OpenOptions],
) -> Array:
    """open() for asyncio: waits as wait_async() does, and attaches, which takes some 10 us. It does not wait until a
    buffer is clean: refuse_dirty raises Dirty at once. Otherwise as open().
    """
    open, stat = (connection.open, connection.stat) if connection else (_core.open, _core.stat)
    end = None if timeout is None else time.monotonic() + timeout
    seen: int | None = None
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        try:
            await wait_async(name, left, connection=connection)
        except _core.Timeout:
            raise _late(name, timeout) from None
        try:
            return open(name, access, **options)
        except (_core.NotFound, _core.NotPublished) as e:
            # Another process unlinked it in between; it may be published again.
            if end is not None and time.monotonic() >= end:
                raise
            before, seen = seen, _id_of(name, stat)
            # The same buffer was there all the time: it has no such array.
            if isinstance(e, _core.NotFound) and seen is not None and seen == before:
                raise


def _late(name: str, timeout: float | None) -> _core.Timeout:
    return _core.Timeout(errno.ETIMEDOUT, f'buffer "{name}" was not published in {timeout} s')


def _id_of(name: str, stat: Callable[[str], _core.BufferInfo]) -> int | None:
    """The id of the buffer that has the name; None: there is no such buffer."""
    try:
        return stat(name).id
    except _core.NotFound:
        return None


# ---- streams ----


def is_running() -> bool:
    """Whether an event loop runs in this thread."""
    events = sys.modules.get("asyncio.events")
    return events is not None and events._get_running_loop() is not None


async def nothing() -> None:
    """For what has nothing to wait for."""


async def join(reader: _core.Reader, timeout: float | None) -> _core.Reader:
    """Reader.__aenter__(): waits until the stream is there, and joins it."""
    import asyncio

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


async def frame_to_fill(stream: _core.Stream, cuda_stream: Stream | None, timeout: float | None) -> _core.Frame:
    """Stream.frame_async()."""
    import asyncio

    try:
        async with asyncio.timeout(timeout):
            while True:
                try:
                    return stream.frame(cuda_stream, timeout=0)
                except _core.Timeout:
                    await _readable(stream)
    except TimeoutError as e:
        raise _timed_out(e, f'stream "{stream.name}": no slot was free in {timeout} s') from None


def _timed_out(e: TimeoutError, text: str) -> TimeoutError:
    return e if isinstance(e, _core.Error) else _core.Timeout(errno.ETIMEDOUT, text)
