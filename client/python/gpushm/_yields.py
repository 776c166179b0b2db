# SPDX-License-Identifier: MIT
"""yields() and use(): a thread suspends what was not used for a while, and what is wanted; the next use resumes it.

All is known of each Buffer, so that things which share one keep it for each other. The thread waits for no lock: who
has it may wait for memory that the thread is to give back.
"""

from __future__ import annotations

import atexit
import errno
import math
import os
import select
import sys
import threading
import time
import weakref
from typing import TYPE_CHECKING, Any, cast

from . import _core

if TYPE_CHECKING:
    import torch

    from ._typing import Array, Buffer

_SOON = 0.01  # seconds until a suspend that was refused is tried again; doubles up to _LATER
_LATER = 1.0
_FULL = 0.02  # seconds until the next try to get memory where the pool is full

_now = time.monotonic
_thread_id = threading.get_ident


class _Memory:
    """A Buffer and who needs its memory. Times are those of _now().

    A use says what it needs, and then looks at `going` and at the Buffer; the thread sets `going`, and then looks at
    what is needed. So one of them sees the other, as the interpreter's lock orders both.
    """

    __slots__ = ("after", "buffer", "daemon", "going", "held", "idle_at", "lock", "pause", "promised", "yields")

    def __init__(self, buffer: Buffer) -> None:
        key = id(buffer)
        self.buffer = weakref.ref(buffer, lambda _: _forget(key))
        self.daemon = buffer.connection.socket
        self.lock = threading.Lock()  # while it is suspended or resumed
        self.going = self.yields = False
        self.held: list[None] = []  # an element for each block: methods of list and dict need no lock
        self.promised: dict[int, float] = {}  # until when, to each thread
        self.after = self.idle_at = 0.0
        self.pause = _SOON

    def come_back(self, timeout: float | None) -> None:
        """It is away or going. Others may be faster to take what is given back: tries until the time is over."""
        until = math.inf if timeout is None else _now() + timeout
        if not self.lock.acquire(timeout=-1 if timeout is None else _left(until)):
            raise _core.Timeout(errno.ETIMEDOUT, "another thread suspends or resumes the memory")
        try:
            while (buffer := self.buffer()) is not None and buffer.away:
                try:
                    buffer.resume(None if timeout is None else _left(until))
                except _core.PoolFull:
                    if until - _now() <= _FULL:
                        raise
                    time.sleep(_FULL)
        finally:
            self.lock.release()
        _thread.wake()

    def release(self) -> None:
        """The end of a block."""
        self.idle_at = _now() + self.after
        self.held.pop()
        buffer = self.buffer()
        if buffer is not None and not buffer.closed and buffer.wanted:
            _thread.wake()

    def turn(self) -> float:
        """The thread's: suspends it if it is time. Returns when to look again."""
        buffer, now = self.buffer(), _now()
        if buffer is None or buffer.closed:
            self.yields = False
            return now
        if buffer.away:
            return math.inf
        if not self.lock.acquire(blocking=False):
            return now + _SOON
        self.going = True
        try:
            if self.held:
                return now + max(self.after, _SOON)
            due = max(self.promised.values(), default=0.0)
            if not buffer.wanted:
                due = max(due, self.idle_at)
            if due > now:
                return due
            buffer.suspend()
            self.pause = _SOON
            return math.inf
        except _core.StateError:
            self.pause = min(2 * self.pause, _LATER)
            return now + self.pause
        except Exception as e:
            self.yields = not isinstance(e, _core.NotSupported)
            _say(f'buffer "{buffer.name}" does not yield: {e}')
            return now + _LATER
        finally:
            self.going = False
            self.lock.release()


# By the id() of a Buffer or a module.
_known: dict[int, tuple[weakref.ref[Any], tuple[_Memory, ...]]] = {}
_said: set[str] = set()


def _left(until: float) -> float:
    return max(until - _now(), 0.001)


def _say(text: str) -> None:
    if text not in _said:
        _said.add(text)
        print(f"gpushm: {text}", file=sys.stderr)


def _forget(buffer: int) -> None:
    """A Buffer has ended. Python's collector may call this at any moment: it takes no lock."""
    gone = _known.pop(buffer, None)
    for key, (_, memories) in list(_known.items()) if gone else ():
        if gone and gone[1][0] in memories:
            _known.pop(key, None)
    _thread.poke()


def _memory_of(buffer: Buffer) -> _Memory:
    known = _known.get(id(buffer))
    if known is None:
        made = _Memory(buffer)
        known = _known.setdefault(id(buffer), (made.buffer, (made,)))
    return known[1][0]


def _find(x: object) -> tuple[_Memory, ...]:
    if isinstance(x, _core.Array):
        x = x.buffer
    if isinstance(x, _core.Buffer):
        return (_memory_of(cast("Buffer", x)),)
    module = sys.modules.get("torch")
    if module is None or not isinstance(x, module.nn.Module):
        raise TypeError(f"a torch.nn.Module, a Buffer or an Array is wanted, not a {type(x).__name__}")
    from .torch._suspend import buffers_of

    key, memories = id(x), tuple(map(_memory_of, buffers_of(x)))
    _known[key] = weakref.ref(x, lambda _: _known.pop(key, None)), memories
    return memories


class _Thread:
    """The thread, which runs while anything yields, and what wakes it."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.fd = -1  # an eventfd; stays, because poke() may write to it at any moment
        self.lock = threading.Lock()
        self.runs: threading.Thread | None = None
        self.over = False

    def poke(self) -> None:
        if self.fd >= 0:
            os.eventfd_write(self.fd, 1)

    def wake(self) -> None:
        """Starts it, too."""
        with self.lock:
            if self.fd < 0:
                self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
                atexit.register(self.stop)
            if self.runs is None and not self.over and self.yielding():
                self.runs = threading.Thread(target=self.run, name="gpushm yields", daemon=True)
                self.runs.start()
        self.poke()

    def stop(self) -> None:
        """The end of the program. A thread that is in the driver then may end it with an error."""
        with self.lock:
            self.over, runs = True, self.runs
        self.poke()
        if runs is not None:
            runs.join()

    def yielding(self) -> set[_Memory]:
        return {m for _, memories in list(_known.values()) for m in memories if m.yields}

    def run(self) -> None:
        # Of its own: the fds of others are closed with them.
        daemons: dict[str | None, _core.Connection] = {}
        while True:
            with self.lock:
                memories = self.yielding()
                if self.over or not memories:
                    self.runs = None
                    break
            fds = self.listen(daemons, memories)
            at = min(m.turn() for m in memories)
            if not fds:
                at = min(at, _now() + _LATER)
            poll = select.poll()
            for fd in (self.fd, *fds):
                poll.register(fd, select.POLLIN)
            if any(fd == self.fd for fd, _ in poll.poll(max(min(at - _now(), 86400), 0) * 1e3 + 1)):
                os.eventfd_read(self.fd)
        for connection in daemons.values():
            connection.close()

    def listen(self, daemons: dict[str | None, _core.Connection], memories: set[_Memory]) -> list[int]:
        """The fds that are readable when something else is wanted."""
        fds = []
        for path in {m.daemon for m in memories}:
            try:
                if path not in daemons:
                    daemons[path] = _core.Connection(path)
                fds.append(daemons[path]._wanted_fd())
            except _core.Error as e:
                _say(f"what is wanted is not known: {e}")
        return fds


_thread = _Thread()


def _in_child() -> None:
    """What the parent opened is the parent's to suspend, and its locks may be taken."""
    for _, memories in _known.values():
        for memory in memories:
            memory.lock = threading.Lock()
    _known.clear()
    if _thread.fd >= 0:
        os.close(_thread.fd)
    _thread.reset()


os.register_at_fork(after_in_child=_in_child)


class Use:
    """What use() returns: a context manager that keeps the memory where it is until the block ends."""

    __module__ = "gpushm.types"
    __slots__ = ("_promises", "_thread", "_timeout")

    def __init__(self, promises: list[tuple[_Memory, float, float]], thread: int, timeout: float | None) -> None:
        """promises: what each memory was promised to the thread before use(), and since."""
        self._promises, self._thread, self._timeout = promises, thread, timeout

    def __enter__(self) -> None:
        """Holds the memory, and takes back what use() has promised."""
        held, same = [], _thread_id() == self._thread
        try:
            for memory, before, mine in self._promises:
                memory.held.append(None)
                held.append(memory)
                if same and memory.promised[self._thread] is mine:
                    memory.promised[self._thread] = before
                if memory.going or ((buffer := memory.buffer()) is not None and buffer.away):
                    memory.come_back(self._timeout)
        except BaseException:
            for memory in held:
                memory.release()
            raise

    def __exit__(self, *raised: object) -> None:
        """Lets the memory yield again."""
        for memory, _, _ in self._promises:
            memory.release()


def use(x: torch.nn.Module | Buffer | Array, timeout: float | None = 60) -> Use:
    """Says that a module, a Buffer or an Array is used now: its memory is the last that goes, and is there on return.
    Resumes what is suspended, also by others. gpushm-memory(7) says what a resume does.

        with gpushm.use(model):       # it is not suspended before the block ends
            y = model(x)

        gpushm.use(model)             # nor in the next `after` seconds of yields()

    A block may end when the work is queued on the GPU: a suspend waits for it. Blocks may overlap and nest, in one
    thread and several. A block counts no longer than it lasts, so what is wanted yields at its end; a plain use() keeps
    its promise also where the memory is wanted. Both delay the suspend of what is idle by `after` seconds.

    It takes about a microsecond and no system call if the memory is there. timeout: seconds to wait for the daemon, for
    other threads, and for memory while the pool is full; None for ever. Errors: Timeout, PoolFull, TypeError,
    ValueError (the module has no tensor in a buffer), and those of Buffer.resume().
    """
    known, thread = _known.get(id(x)), _thread_id()
    promises = []
    for memory in known[1] if known else _find(x):
        before = memory.promised.get(thread, 0.0)
        memory.promised[thread] = mine = max(before, _now() + memory.after)
        promises.append((memory, before, mine))
        if memory.going or ((buffer := memory.buffer()) is not None and buffer._touch()):
            memory.come_back(timeout)
    return Use(promises, thread, timeout)


def yields(x: torch.nn.Module | Buffer | Array, after: float = 30) -> None:
    """From now on the memory of a module, a Buffer or an Array is given back by itself. A thread suspends it when it
    was not used for that many seconds, or when the daemon wants it for others (Buffer.wanted). The next use() resumes
    it. math.inf: only when it is wanted.

    From now on nobody may touch the memory but in a `with gpushm.use(x):` block, or within `after` seconds of a plain
    gpushm.use(x): otherwise it may be gone, as Buffer.suspend() says. What has the same Buffer counts as one: any use
    keeps it for all, and the last yields() says how long. Nothing is kept alive by this: what was collected or closed
    has no more to yield. Call it again for a module that has got tensors of another buffer.

    One thread serves all of the process. A suspend that is refused because another thread copies is tried again; other
    errors are printed on stderr, each text once. A forked child has no such thread, and does not yield what its parent
    opened: it opens and calls yields() itself. Errors: those of use().
    """
    if not after >= 0:
        raise ValueError("after is a number of seconds")
    for memory in _find(x):
        if (buffer := memory.buffer()) is not None:
            buffer.use()
        memory.after, memory.idle_at, memory.yields = after, _now() + after, True
    _thread.wake()
