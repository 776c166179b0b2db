# SPDX-License-Identifier: MIT
"""A daemon that is stopped: each call ends in the connection's time, and the connection is good afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gpushm
import pytest

from daemon import Daemon


@pytest.fixture
def daemon() -> Iterator[Daemon]:
    """A daemon that may be stopped."""
    d = Daemon("[pool host]\nkind=host\nsize=64M\n")
    yield d
    d.remove()


@contextmanager
def stopped(d: Daemon) -> Iterator[int]:
    """While it is stopped; its pid."""
    assert d.process is not None
    pid = d.process.pid
    d.signal(signal.SIGSTOP)
    while Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "T":
        pass
    try:
        yield pid
    finally:
        d.signal(signal.SIGCONT)


CALLS: dict[str, Callable[[gpushm.types.Connection], object]] = {
    "stat": lambda c: c.stat("a"),
    "ls": lambda c: c.ls(),
    "open": lambda c: c.open("a"),
    "open, for ever": lambda c: c.open("a", timeout=None),
    "wait": lambda c: c.wait("none", None),
    "create": lambda c: c.create("new", (2,)),
    "create, for ever": lambda c: c.create("new", (2,), wait=None),
    "open_or_create": lambda c: c.open_or_create("new", (2,)),
    "unlink": lambda c: c.unlink("none"),
    "status": lambda c: c.status(),
    "stream": lambda c: c.stream("s", {"x": ((2,), "f4")}),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_to_a_stopped_daemon_times_out(daemon: Daemon, name: str) -> None:
    with gpushm.types.Connection(daemon.socket) as c:
        c.create("a", (2,)).publish()
        leases = c.status().leases
        c.set_timeout(0.1)
        # Made before: connecting has a limit of its own.
        with pytest.raises(gpushm.errors.Timeout):
            c.wait("none", 0.01)
        with stopped(daemon) as pid, pytest.raises(TimeoutError, match=rf"process {pid} is stopped") as caught:
            CALLS[name](c)
        assert isinstance(caught.value, gpushm.errors.Timeout) and caught.value.code == "NO_REPLY"
        c.set_timeout(60)
        with pytest.raises(gpushm.errors.NotFound):
            c.stat("none")
        assert c.status().leases == leases
        c.unlink("a")


# ---- asyncio ----

ASYNC_CALLS: dict[str, Callable[[gpushm.types.Connection], Coroutine[Any, Any, object]]] = {
    "open": lambda c: gpushm.open_async("a", connection=c),
    "open, of what is clean": lambda c: gpushm.open_async("a", refuse_dirty=True, connection=c),
    "wait": lambda c: gpushm.wait_async("none", connection=c),
}


@pytest.mark.parametrize("name", ASYNC_CALLS)
def test_a_loop_goes_on_while_the_daemon_is_stopped(daemon: Daemon, name: str) -> None:
    async def main(c: gpushm.types.Connection) -> None:
        turns = 0
        with stopped(daemon) as pid:
            task = asyncio.create_task(ASYNC_CALLS[name](c))  # type: ignore[var-annotated]
            while not task.done():
                await asyncio.sleep(0.001)
                turns += 1
            with pytest.raises(gpushm.errors.Timeout, match=rf"process {pid} is stopped") as caught:
                await task
        assert caught.value.code == "NO_REPLY" and turns > 20

    with gpushm.types.Connection(daemon.socket) as c:
        c.create("a", (2,)).publish()
        leases = c.status().leases
        c.set_timeout(0.5)
        asyncio.run(main(c))
        c.set_timeout(60)
        assert c.status().leases == leases
        c.unlink("a")


def test_a_call_to_a_stopped_daemon_can_be_cancelled(daemon: Daemon) -> None:
    async def main(c: gpushm.types.Connection) -> None:
        with stopped(daemon):
            tasks = [asyncio.create_task(call(c)) for call in ASYNC_CALLS.values()]  # type: ignore[var-annotated]
            await asyncio.sleep(0.1)
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(e, asyncio.CancelledError) for e in done)

    with gpushm.types.Connection(daemon.socket) as c:
        c.create("a", (2,)).publish()
        c.set_timeout(None)
        asyncio.run(main(c))
        c.unlink("a")
        while c.status().leases:
            pass


def test_many_opens_wait_for_a_stopped_daemon_at_a_time(daemon: Daemon) -> None:
    async def main(c: gpushm.types.Connection) -> None:
        with stopped(daemon):
            tasks = [asyncio.create_task(gpushm.open_async("a", connection=c)) for _ in range(50)]
            await asyncio.sleep(0.1)
            assert not any(task.done() for task in tasks)
        for a in await asyncio.gather(*tasks):
            a.close()

    with gpushm.types.Connection(daemon.socket) as c:
        c.create("a", (2,)).publish()
        asyncio.run(main(c))
        c.unlink("a")


# ---- Ctrl-C and settings ----


def test_ctrl_c_ends_a_call_to_a_stopped_daemon(daemon: Daemon) -> None:
    with gpushm.types.Connection(daemon.socket) as c:
        c.set_timeout(None)
        assert c.ls() == []
        with stopped(daemon):
            timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                c.ls()
            timer.join()
        assert c.ls() == []


def test_a_handler_of_ctrl_c_may_use_the_connection(daemon: Daemon) -> None:
    seen: list[object] = []
    with gpushm.types.Connection(daemon.socket) as c:
        c.set_timeout(0.4)
        assert c.ls() == []

        def on_signal(number: int, frame: object) -> None:
            with pytest.raises(gpushm.errors.Timeout):
                c.ls()
            seen.append(number)

        before = signal.signal(signal.SIGINT, on_signal)
        try:
            with stopped(daemon):
                timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
                timer.start()
                with pytest.raises((InterruptedError, gpushm.Error)):
                    c.ls()
                timer.join()
            assert seen == [signal.SIGINT]
            c.set_timeout(60)
            assert c.ls() == []
        finally:
            signal.signal(signal.SIGINT, before)


def test_the_environment_sets_the_time(daemon: Daemon) -> None:
    program = (
        "import gpushm, sys\nc = gpushm.connect(sys.argv[1])\nprint(len(c.ls()), flush=True)\nsys.stdin.readline()\n"
        "try:\n    c.ls()\nexcept gpushm.errors.Timeout as e:\n    print(e)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, daemon.socket],
        env=os.environ | {"GPUSHM_TIMEOUT_MS": "70"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as p:
        assert p.stdin and p.stdout and p.stdout.readline() == "0\n"
        with stopped(daemon):
            p.stdin.write("\n")
            p.stdin.flush()
            assert "within 70 ms" in p.stdout.readline()


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), "1"])
def test_a_timeout_is_a_positive_number(wrong: float) -> None:
    with pytest.raises((ValueError, TypeError)):
        gpushm.set_timeout(wrong)


def test_the_common_connection_has_a_time() -> None:
    gpushm.set_timeout(30)
    begun = time.monotonic()
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.stat("none")
    assert time.monotonic() - begun < 30
    gpushm.set_timeout(60)
