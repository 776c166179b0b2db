# SPDX-License-Identifier: MIT
"""Events, in a thread, with poll(), and in asyncio's loop."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
import threading
from typing import Any

import gpushm
import pytest


def made(name: str, state: str = "shared", pool: str = "host") -> gpushm.Array:
    a = gpushm.create(name, 4, pool=pool)
    a.publish(state)
    return a


def test_each_event_of_a_watched_name_is_told() -> None:
    with gpushm.watch("a", "b") as w:
        with pytest.raises(gpushm.errors.Timeout):
            w.next(0)
        with made("a") as a:
            told = w.next(60)
            assert told == ("published", "a", a.buffer.id) and told.what == "published"
            code = "import gpushm, os\na = gpushm.open('a', 'r+')\nos.kill(os.getpid(), 9)"
            assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
            assert w.next(60) == ("dirty", "a", a.buffer.id)
            gpushm.clean("a")
            assert w.next(60) == ("clean", "a", a.buffer.id)
            gpushm.unlink("a")
            assert w.next(60) == ("unlinked", "a", a.buffer.id)
        with made("b"):
            assert w.next(60).name == "b"
            gpushm.unlink("b")
            assert w.next(60).what == "unlinked"


def test_the_end_of_a_buffer_is_told() -> None:
    a = made("a")
    with gpushm.watch(a[1:], a.buffer) as w:
        number = a.buffer.id
        gpushm.unlink("a")
        assert w.next(60) == ("unlinked", "a", number)
        a.close()
        while (told := w.next(60)).what != "gone":
            assert told.buffer == number


def test_a_restart_of_the_daemon_is_told(other_daemon: Any) -> None:
    with gpushm.connect(other_daemon.socket) as c, c.watch("a") as w:
        other_daemon.kill()
        other_daemon.start()
        assert w.next(60) == ("restarted", "", 0)
        with c.create("a", 4, pool="host") as a:
            a.publish()
            assert w.next(60).what == "published"
        c.unlink("a")


def test_a_watch_refuses_what_it_cannot_watch() -> None:
    with gpushm.watch() as w:
        for wrong, error in ((7, TypeError), (None, TypeError), ("", ValueError), ("a\0b", ValueError)):
            with pytest.raises(error):
                w.add(wrong)
        with made("a") as a:
            pass
        with pytest.raises(ValueError, match="closed"):
            w.add(a)
        gpushm.unlink("a")
        for i in range(256):
            w.add(f"n/{i}")
        with pytest.raises(gpushm.Error, match="256"):
            w.add("one/more")
    assert w.closed
    w.close()
    for use in (w.fileno, lambda: w.add("a"), lambda: w.next(0), lambda: next(w), w.__enter__):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(TypeError):
        gpushm.types.Watch()


def test_poll_wakes_for_an_event() -> None:
    with gpushm.watch("a") as w:
        poll = select.poll()
        poll.register(w, select.POLLIN)
        with made("a"):
            told: list[Any] = []
            while not told:
                assert poll.poll(60000)
                try:
                    told.append(w.next(0))
                except gpushm.errors.Timeout:
                    continue
            assert told[0].name == "a"
        gpushm.unlink("a")


def test_a_close_while_a_thread_waits_is_refused() -> None:
    interval = sys.getswitchinterval()
    # The other thread runs only when this one waits.
    sys.setswitchinterval(100)
    try:
        with gpushm.watch("a") as w:
            begin, refused = threading.Lock(), []

            def close() -> None:
                with begin:
                    try:
                        w.close()
                    except gpushm.errors.InUse as e:
                        refused.append(str(e))
                    made("a").close()

            begin.acquire()
            other = threading.Thread(target=close)
            other.start()
            begin.release()
            assert w.next(60).what == "published"
            other.join()
            assert refused == ["[Errno 16] the watch can't be closed while 1 thread or task waits on it"]
    finally:
        sys.setswitchinterval(interval)
    gpushm.unlink("a")


def test_a_forked_child_is_refused_its_parents_watch() -> None:
    with gpushm.watch("a") as w:
        pid = os.fork()
        if pid == 0:
            try:
                w.next(0)
            except gpushm.errors.ForkError:
                os._exit(3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3


# ---- asyncio ----


def test_an_event_loop_runs_while_names_are_waited_for() -> None:
    async def consume(name: str) -> str:
        a = await gpushm.open_async(name, timeout=60)
        with a:
            return str(a.name)

    async def main() -> list[str]:
        waiting = [asyncio.create_task(consume(f"n/{i}")) for i in range(20)]
        await asyncio.sleep(0)
        for i in reversed(range(20)):
            made(f"n/{i}").close()
            await asyncio.sleep(0)
        return await asyncio.gather(*waiting)

    assert asyncio.run(main()) == [f"n/{i}" for i in range(20)]
    for i in range(20):
        gpushm.unlink(f"n/{i}")


def test_a_wait_of_a_task_can_time_out_or_be_cancelled() -> None:
    async def main() -> None:
        with pytest.raises(gpushm.errors.Timeout, match="not/there"):
            await gpushm.wait_async("not/there", 0.01)
        for seconds in (0, 0.01):
            with pytest.raises(gpushm.errors.Timeout, match="not/there"):
                await gpushm.open_async("not/there", timeout=seconds)
        task = asyncio.create_task(gpushm.wait_async("not/there"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        with made("a"):
            await gpushm.wait_async("a", 0)
        gpushm.unlink("a")

    asyncio.run(main())


def test_open_async_refuses_an_array_that_is_not_there() -> None:
    with gpushm.create_many("m", {"x": 1, "y": 2}, pool="host") as b:
        b.publish()
    with pytest.raises(gpushm.errors.NotFound, match="2 arrays"):
        asyncio.run(gpushm.open_async("m"))
    with pytest.raises(gpushm.errors.NotFound, match='no array called "z"'):
        asyncio.run(gpushm.open_async("m", array="z"))
    with asyncio.run(gpushm.open_async("m", array="y", shape=(1, 4), dtype="u1", offset=0)) as y:
        assert y.shape == (1, 4)
    for wrong in ({"access": "w"}, {"array": 1}, {"timeout": "1"}, {"device": "x"}, {"what": 1}):
        with pytest.raises((TypeError, ValueError)):
            asyncio.run(gpushm.open_async("m", **wrong))  # type: ignore[arg-type]
    gpushm.unlink("m")


def test_open_async_refuses_a_dirty_buffer_at_once() -> None:
    made("a").close()
    code = "import gpushm, os\na = gpushm.open('a', 'r+')\nos.kill(os.getpid(), 9)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == -signal.SIGKILL
    with pytest.raises(gpushm.errors.Dirty, match="died at"):
        asyncio.run(gpushm.open_async("a", refuse_dirty=True))
    asyncio.run(gpushm.open_async("a")).close()
    gpushm.clean("a")
    asyncio.run(gpushm.open_async("a", refuse_dirty=True)).close()
    gpushm.unlink("a")


def test_a_closed_connection_begins_no_call(other_daemon: Any) -> None:
    c = gpushm.connect(other_daemon.socket)
    with pytest.raises(gpushm.errors.Timeout):
        asyncio.run(gpushm.wait_async("a", 0, connection=c))
    c.close()
    with pytest.raises(ValueError, match="closed"):
        asyncio.run(gpushm.open_async("a", connection=c))


def test_a_call_says_that_there_is_no_daemon(other_daemon: Any) -> None:
    with gpushm.connect(other_daemon.socket) as c:
        # The first has a new connection, the second one the connection of another call.
        for _ in range(2):
            other_daemon.kill()
            with pytest.raises(gpushm.errors.DaemonGone, match="start gpushmd"):
                asyncio.run(gpushm.open_async("a", connection=c))
            other_daemon.start()
            with pytest.raises(gpushm.errors.Timeout):
                asyncio.run(gpushm.wait_async("a", 0, connection=c))


def test_async_for_gets_each_event() -> None:
    async def seen() -> list[str]:
        found = []
        with gpushm.watch("a") as w:
            a = made("a")
            async for event in w:
                found.append(event.what)
                if event.what == "published":
                    gpushm.unlink("a")
                    a.close()
                else:
                    break
        return found

    assert asyncio.run(seen()) == ["published", "unlinked"]


def test_two_tasks_at_one_watch_get_an_event_each() -> None:
    async def main() -> None:
        with gpushm.watch("a", "b") as w:
            one, two = (asyncio.create_task(anext(w)) for _ in range(2))
            # Now both tasks wait.
            await asyncio.sleep(0)
            for name in ("a", "b"):
                made(name).close()
            async with asyncio.timeout(60):
                assert {(await one).name, (await two).name} == {"a", "b"}

    asyncio.run(main())
    for name in ("a", "b"):
        gpushm.unlink(name)


def test_a_close_while_tasks_wait_is_refused() -> None:
    async def main() -> None:
        w = gpushm.watch("never")
        tasks = [asyncio.create_task(anext(w)) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(gpushm.errors.InUse, match="2 threads or tasks wait"):
            w.close()
        for task in tasks:
            task.cancel()
        assert all(isinstance(e, asyncio.CancelledError) for e in await asyncio.gather(*tasks, return_exceptions=True))
        w.close()
        with pytest.raises(ValueError, match="closed"):
            await anext(w)

    asyncio.run(main())


@pytest.mark.parametrize("gap", [0, 0.2])
def test_a_wait_of_a_task_survives_a_restart_of_the_daemon(other_daemon: Any, gap: float) -> None:
    async def main() -> None:
        with gpushm.connect(other_daemon.socket) as c:
            task = asyncio.create_task(gpushm.wait_async("a", 60, connection=c))
            await asyncio.sleep(0.1)
            other_daemon.kill()
            await asyncio.sleep(gap)
            other_daemon.start()
            with gpushm.connect(other_daemon.socket) as again:
                a = again.create("a", 4, pool="host")
                a.publish()
                await task
                a.close()
                again.unlink("a")

    asyncio.run(main())
