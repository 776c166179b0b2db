# SPDX-License-Identifier: MIT
"""Waiting in an event loop, without a thread and without polling: the loop's own poll() has a Watch's descriptor."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    import asyncio
    from typing import Unpack

    from ._typing import Access, Array, OpenOptions


async def next_event(watch: _core.Watch) -> _core.Event:
    """A Watch's next Event, for `async for`. If several tasks wait, one of them gets it."""
    # At the top it would double the time of `import gpushm`; a caller of this has imported it.
    import asyncio

    loop = asyncio.get_running_loop()
    while True:
        try:
            return watch.next(0)
        except _core.Timeout:
            pass
        readable = loop.create_future()
        # A loop allows one reader for each descriptor, so each task uses a copy.
        fd = os.dup(watch.fileno())
        watch._hold()
        try:
            loop.add_reader(fd, _wake, readable)
            await readable
        finally:
            loop.remove_reader(fd)
            os.close(fd)
            watch._release()


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
            raise _core.Timeout(errno.ETIMEDOUT, f'buffer "{name}" was not published in {timeout} s') from None


async def open_async(
    name: str,
    access: Access = "r",
    timeout: float | None = None,
    *,
    connection: _core.Connection | None = None,
    **options: Unpack[OpenOptions],
) -> Array:
    """open() for asyncio: waits as wait_async() does, and attaches, which takes some 10 us. Otherwise as open()."""
    open = connection.open if connection else _core.open
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = None if end is None else max(0.0, end - time.monotonic())
        await wait_async(name, left, connection=connection)
        try:
            return open(name, access, **options)
        except (_core.NotFound, _core.NotPublished):
            # Another process unlinked it in between; it may be published again.
            if end is not None and time.monotonic() >= end:
                raise
