# SPDX-License-Identifier: MIT
"""events(): what the daemon logs, as an iterator for `for` and `async for`."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from . import _core

if TYPE_CHECKING:
    from typing import Self

_NEW = 2**64 - 1
_TURN = 0.25  # seconds: a task that is cancelled leaves a thread of asyncio's pool for so long


class Events:
    """What happens, one LoggedEvent after the other. events() makes one. Not for several threads at a time."""

    __module__ = "gpushm.types"
    lost: int
    """How many events of all users the daemon had no room to keep until they were asked for."""

    def __init__(self, types: str | None, since: float | None, connection: _core.Connection | None) -> None:
        self._ask = connection._events if connection else _core._events
        self._types = types
        self._since = 0.0 if since is None else time.time() - since
        self._after = 0 if since is None or since > 0 else _NEW
        self._found: deque[_core.LoggedEvent] = deque()
        self.lost = 0
        self._read(0)
        if since is not None:
            self.lost = 0  # What is gone may be older than that.

    def _read(self, timeout: float | None) -> int:
        """Returns how many events there were; those before `since` are left out."""
        found, self._after, lost = self._ask(self._after, self._types, timeout)
        self._found.extend(e for e in found if e.time >= self._since)
        self.lost += lost
        return len(found)

    def next(self, timeout: float | None = None) -> _core.LoggedEvent | None:
        """The next event; waits that many seconds for it, None for ever. None: nothing has happened.

        Other threads run meanwhile, and Ctrl-C works. After a restart of the daemon it goes on with the next one.
        Errors: DaemonGone, after which a later call tries again.
        """
        while not self._found:
            if self._read(timeout) == 0:
                return None
        return self._found.popleft()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> _core.LoggedEvent:
        while (event := self.next()) is None:
            pass
        return event

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> _core.LoggedEvent:
        import asyncio

        while not self._found:
            await asyncio.to_thread(self._read, _TURN)
        return self._found.popleft()


def events(*types: str, since: float | None = 0, connection: _core.Connection | None = None) -> Events:
    """Follows what happens to buffers, to the processes that hold them, to pools and to the daemon, and who does it.

    types: only these: 'started', 'created', 'published', 'opened', 'closed', 'renamed', 'replaced', 'unlinked',
    'freed', 'dirty', 'cleaned', 'died', 'lost', 'refused', 'disconnected', 'suspect', 'pool-failed',
    'pool-recovered', 'joined', 'dropped', 'orphaned', 'continued', 'suspended', 'resumed', 'evicted', 'restored',
    'parked', 'unparked', 'stuck'; gpushmctl(1) describes them, and who sees which. since: begin with what happened so
    many seconds ago; 0: with what comes, None: with everything that the daemon has kept. connection: a Connection, to
    follow another daemon. Errors: BadArgument (a type), LimitReached, DaemonGone.
    """
    return Events(",".join(types) or None, since, connection)
