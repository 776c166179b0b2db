# SPDX-License-Identifier: MIT
"""More in a pool than it has room for: what Python says of it, and memory that yields by itself and comes back."""

from __future__ import annotations

import gc
import math
import os
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import gpushm
import numpy as np
import pytest
from gpushm import _yields

from daemon import Daemon

_yields._thread.wake()  # makes its eventfd, which stays

NBYTES = 1 << 20
CONFIG = (
    "[daemon]\nyield-timeout=60\n"
    "[pool models]\nkind=host\nsize=2M\npending-max-age=0\n[pool twins]\nkind=host\nsize=64M\n"
)


@pytest.fixture
def small() -> Iterator[gpushm.types.Connection]:
    """A daemon with room for two buffers of make()."""
    daemon = Daemon(CONFIG)
    with gpushm.connect(daemon.socket) as c:
        yield c
    ended()
    daemon.remove()


@pytest.fixture(autouse=True)
def no_thread() -> Iterator[None]:
    """The thread ends with what yields, and nothing was printed."""
    _yields._said.clear()
    yield
    ended()
    assert not _yields._said


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


def ended() -> None:
    """What was closed but not collected is found when the thread looks."""
    gc.collect()
    _yields._thread.poke()
    until(lambda: _yields._thread.runs is None)


def make(c: gpushm.types.Connection, n: int, twin: bool = True) -> gpushm.Buffer:
    with c.create(f"m{n}", NBYTES, pool="models") as a:
        a.fill(n + 1)
        a.publish()
    if twin:
        c.make_twin(f"m{n}", "twins")
    return c.open_many(f"m{n}", timeout=0)


def is_right(b: gpushm.Buffer, n: int) -> bool:
    values = b[""].numpy()
    return bool(values[0] == values[-1] == n + 1)


# ---- the calls ----


def test_an_evicted_buffer_comes_back_with_its_bytes(small: gpushm.types.Connection) -> None:
    make(small, 0).close()
    assert small.stat("m0").residence == "resident"
    small.evict("m0")
    small.evict("m0")
    assert small.stat("m0").residence == "twin" and small.pools()[0].used == 0
    with small.open_many("m0") as b:
        assert is_right(b, 0) and small.stat("m0").residence == "resident"


def test_an_open_waits_until_its_buffer_has_room(small: gpushm.types.Connection) -> None:
    make(small, 0).close()
    small.evict("m0")
    full = [small.create(f"full{n}", NBYTES, pool="models") for n in range(2)]
    with pytest.raises(gpushm.errors.PoolFull):
        small.open_many("m0", timeout=0.3)
    timer = threading.Timer(0.3, full[0].buffer.discard)
    timer.start()
    with small.open_many("m0", timeout=60) as b:
        assert is_right(b, 0)
    timer.join()
    full[1].buffer.discard()


def test_what_cannot_be_evicted_says_why(small: gpushm.types.Connection) -> None:
    with make(small, 0, twin=False) as b:
        with pytest.raises(gpushm.errors.StateError, match="twin"):
            small.evict("m0")
        with pytest.raises(gpushm.errors.StateError, match="twin"):
            small.set_keep("m0", 1)
        small.make_twin("m0", "twins")
        with pytest.raises(gpushm.errors.Exists):
            small.make_twin("m0", "twins")
        with pytest.raises(gpushm.errors.StateError):
            small.evict("m0")
        b.suspend()
        small.evict("m0")
        b.resume()
        assert is_right(b, 0)
    for call in (small.evict, lambda name: small.make_twin(name, "twins"), lambda name: small.set_keep(name, 1)):
        with pytest.raises(gpushm.errors.NotFound):
            call("none")


def test_keep_says_who_stays(small: gpushm.types.Connection) -> None:
    make(small, 0).close()
    make(small, 1).close()
    for wrong in (-1, math.nan):
        with pytest.raises(ValueError, match="seconds"):
            small.set_keep("m0", wrong)
    for seconds in (None, math.inf, 3600.5):
        small.set_keep("m0", seconds, priority=-3)
        make(small, 2).close()
        assert small.stat("m0").residence == "resident" and small.stat("m1").residence == "twin"
        small.unlink("m2")
        small.open_many("m1").close()
    small.set_keep("m0", 0)
    make(small, 2).close()
    assert small.stat("m0").residence == "twin"


def test_who_uses_a_buffer_sees_that_it_is_wanted(small: gpushm.types.Connection) -> None:
    with make(small, 0) as b, make(small, 1) as other:
        b.use()  # so it is the last one that is asked for
        assert not b.wanted
        third = threading.Thread(target=lambda: make(gpushm.connect(small.socket), 2).close())
        third.start()
        until(lambda: other.wanted)
        assert not b.wanted
        other.suspend()
        third.join()
        assert not other.wanted and small.stat("m1").residence == "twin"


# ---- by itself ----


@pytest.fixture
def buffer(pool: str) -> Iterator[gpushm.Buffer]:
    """Sealed; not in a mempool."""
    if next(p.kind for p in gpushm.pools() if p.name == pool) == "mempool":
        pytest.skip("a process has a mempool as a whole")
    with gpushm.create("b", (4,), "u1", pool=pool) as a:
        a[...] = [1, 2, 3, 4]
        a.publish()
    with gpushm.open_many("b") as b:
        yield b
    gpushm.unlink("b")


def test_what_is_idle_goes_and_comes_back_with_its_next_use(buffer: gpushm.Buffer) -> None:
    gpushm.yields(buffer, 0)
    for thing in (buffer, buffer[""]):
        until(lambda: buffer.away)
        with gpushm.use(thing):
            assert buffer[""].tolist() == [1, 2, 3, 4]
            time.sleep(0.05)
            assert not buffer.away
    until(lambda: buffer.away)


def test_a_use_promises_its_seconds(buffer: gpushm.Buffer) -> None:
    gpushm.yields(buffer, 0.2)
    used = time.monotonic()
    while time.monotonic() - used < 0.7:
        used = time.monotonic()
        gpushm.use(buffer)
        assert not buffer.away
        break
    until(lambda: buffer.away)
    assert time.monotonic() - used >= 0.2


def test_what_is_wanted_goes_at_the_end_of_its_block(small: gpushm.types.Connection) -> None:
    with make(small, 0) as b, make(small, 1) as other:
        gpushm.yields(other, math.inf)
        gpushm.yields(b, math.inf)
        gpushm.use(b)  # promised for ever
        with gpushm.use(other):
            third = threading.Thread(target=lambda: make(gpushm.connect(small.socket), 2).close())
            third.start()
            until(lambda: other.wanted)
            time.sleep(0.05)
            assert not other.away
        third.join()
        assert other.away and not b.away
        with gpushm.use(other):
            assert is_right(other, 1) and not b.away


def test_things_of_one_buffer_keep_it_for_each_other(buffer: gpushm.Buffer) -> None:
    gpushm.yields(buffer, 0)
    with gpushm.use(buffer[""]), gpushm.use(buffer[""][1:]), gpushm.use(buffer):
        pass
    with gpushm.use(buffer):
        with gpushm.use(buffer[""]):
            pass
        time.sleep(0.05)
        assert not buffer.away


def test_a_use_without_yields_resumes(buffer: gpushm.Buffer) -> None:
    for wait in (None, 5):
        buffer.suspend()
        with gpushm.use(buffer[""], timeout=wait):
            assert buffer[""].tolist() == [1, 2, 3, 4]
    assert _yields._thread.runs is None


def test_a_copy_of_another_thread_delays_it(host_pool: str) -> None:
    """As does a buffer that is not published yet."""
    with gpushm.create("b", (4,), "u1", pool=host_pool) as a:
        gpushm.yields(a, 0)
        time.sleep(0.05)
        assert not a.away
        a.publish("shared")
        until(lambda: a.away)
    gpushm.unlink("b")


def test_wrong_arguments_are_refused(buffer: gpushm.Buffer) -> None:
    for after in (-1, math.nan):
        with pytest.raises(ValueError, match="seconds"):
            gpushm.yields(buffer, after)
    for call in (gpushm.use, gpushm.yields):
        with pytest.raises(TypeError, match="not a int"):
            call(3)  # type: ignore[arg-type]
        with gpushm.open_many("b") as closed:
            pass
        with pytest.raises(ValueError, match="closed"):
            call(closed)


def test_what_cannot_yield_is_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    with gpushm.create("b", (4,), "u1", pool="host") as a:
        a.publish("shared")
    with gpushm.open("b", "c") as a:
        gpushm.yields(a, 0)
        ended()
        with gpushm.use(a):
            a[...] = 1
    assert capfd.readouterr().err.count('gpushm: buffer "b" does not yield: ') == 1
    _yields._said.clear()
    gpushm.unlink("b")


def test_a_buffer_is_not_kept_alive(host_pool: str) -> None:
    with gpushm.create("b", (4,), "u1", pool=host_pool) as a:
        a.publish()
    b = gpushm.open_many("b")
    gpushm.yields(b)
    seen = weakref.ref(b)
    del b
    gc.collect()
    assert seen() is None and gpushm.stat("b").readers == 0
    gpushm.unlink("b")


def test_a_close_while_it_goes_is_no_error(host_pool: str) -> None:
    with gpushm.create("b", NBYTES, pool=host_pool) as a:
        a.publish()
    for _ in range(300):
        b = gpushm.open("b")
        gpushm.yields(b, 0)
        b.close()
    gpushm.unlink("b")


def test_threads_that_compute_meet_no_unmapped_memory(buffer: gpushm.Buffer) -> None:
    wrong: list[BaseException] = []
    gpushm.yields(buffer, 0)

    def compute() -> None:
        try:
            for i in range(300):
                with gpushm.use(buffer[""] if i % 2 else buffer):
                    if buffer.host_ptr:
                        assert buffer[""].numpy().sum() == 10
                    else:
                        assert buffer[""].tolist() == [1, 2, 3, 4]
                if i % 30 == 0:
                    time.sleep(0.01)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


# ---- one pool, one connection, and more than it has room for ----


def test_threads_of_one_process_share_a_pool_that_is_too_small(small: gpushm.types.Connection) -> None:
    buffers = [make(small, n) for n in range(2)]
    for b in buffers:
        gpushm.yields(b, 5)
    for n in range(2, 5):
        buffers.append(make(small, n))
        gpushm.yields(buffers[n], 5)
    wrong: list[BaseException] = []

    def serve(seed: int) -> None:
        random = np.random.default_rng(seed)
        try:
            for n in random.integers(0, 5, 40):
                with gpushm.use(buffers[n]):
                    assert is_right(buffers[n], n)
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=serve, args=(seed,)) for seed in range(2)]
    started = time.monotonic()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    assert time.monotonic() - started < 60  # nobody waits until the daemon gives up
    for b in buffers:
        b.close()


# ---- processes ----


def test_a_child_uses_what_its_parent_opened_and_yields_its_own(host_pool: str) -> None:
    with gpushm.create("b", (4,), "u1", pool=host_pool) as a:
        a.fill(7)
        a.publish()
    b = gpushm.open("b")
    gpushm.yields(b, 3600)
    block = gpushm.use(b)
    block.__enter__()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            block.__exit__(None, None, None)
            with gpushm.use(b):
                assert b.numpy().tolist() == [7] * 4
            try:
                gpushm.yields(b)
            except gpushm.errors.ForkError:
                own = gpushm.open("b")
                gpushm.yields(own, 0)
                until(lambda: own.away)
                with gpushm.use(own):
                    status = int(own.tolist() != [7] * 4)
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    block.__exit__(None, None, None)
    b.close()
    gpushm.unlink("b")


def test_a_program_ends_while_things_yield() -> None:
    with gpushm.create("b", NBYTES, pool="host") as a:
        a.publish()
    code = 'import gpushm, time; b = gpushm.open("b"); gpushm.yields(b, 0); gpushm.use(b)'
    for _ in range(5):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
        assert (done.returncode, done.stderr) == (0, "")
    gpushm.unlink("b")


def test_the_daemons_end_is_said_and_survived(other_daemon: Daemon, capfd: pytest.CaptureFixture[str]) -> None:
    with gpushm.connect(other_daemon.socket) as c:
        with c.create("b", (4,), "u1", pool="host") as a:
            a.publish()
        b = c.open("b")
    gpushm.yields(b, math.inf)
    other_daemon.kill()
    other_daemon.start()
    b.close()
    ended()
    assert capfd.readouterr().err.count("gpushm: ") <= 1
    _yields._said.clear()
