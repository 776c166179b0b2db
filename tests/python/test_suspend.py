# SPDX-License-Identifier: MIT
"""A process lets go of a buffer's memory and comes back: what is refused meanwhile, and what is valid again."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gpushm
import numpy as np
import pytest

from daemon import Daemon

# A process has a mempool as a whole.
SUSPENDABLE = [p.name for p in gpushm.pools() if not p.failed and p.kind != "mempool"]
ON_HOST = [p.name for p in gpushm.pools() if not p.failed and p.kind in ("host", "pinned")]
VALUES = np.arange(4 * 1024, dtype="f4").reshape(4, 1024)


@pytest.fixture(params=SUSPENDABLE)
def array(request: pytest.FixtureRequest) -> Iterator[gpushm.Array]:
    """Shared, and open for writing."""
    with gpushm.create("a", VALUES.shape, "f4", pool=request.param) as a:
        a[...] = VALUES
        a.publish("shared")
        yield a
    gpushm.unlink("a")


def test_the_contents_come_back_at_the_same_addresses(array: gpushm.Array) -> None:
    places = array.device_ptr, array.host_ptr, array.buffer.device_ptr
    view = array[1]
    for _ in range(3):
        array.suspend()
        array.suspend()
        assert array.away and view.away and array.buffer.away
        assert array.buffer.resume() == array.resume(10) == 0
        assert not array.away
    assert (array.device_ptr, array.host_ptr, array.buffer.device_ptr) == places
    assert (view.copy_to_host() == VALUES[1]).all()


def test_another_generation_of_the_name_is_at_the_same_addresses() -> None:
    with gpushm.create("a", VALUES.shape, "f4", pool="host") as a:
        a[...] = VALUES
        a.publish()
    with gpushm.open("a") as old:
        view, first = old[1], old.buffer.id
        old.suspend()
        with gpushm.create("a.new", VALUES.shape, "f4", pool="host") as new:
            new[...] = VALUES + 1
            new.publish_as("a", replace=True)
        assert old.resume() == 2
        assert old.buffer.id != first and (view.copy_to_host() == VALUES[1] + 1).all()
        old.suspend()
        with gpushm.create("a.new", (3,), "f4", pool="host") as new:
            new.publish_as("a", replace=True)
        with pytest.raises(gpushm.errors.BadContents, match="close it, and open the name again"):
            old.resume()
        assert old.away
    gpushm.unlink("a")


USES: dict[str, Callable[[gpushm.Array], Any]] = {
    "copy_to_host": lambda a: a.copy_to_host(),
    "copy_from_host": lambda a: a.copy_from_host(VALUES),
    "copy_to_device": lambda a: a.copy_to_device(VALUES),
    "fill": lambda a: a.fill(1),
    "assignment": lambda a: a.__setitem__(0, 1),
    "element": lambda a: a[0, 0],
    "item": lambda a: a[0, :1].item(),
    "tolist": lambda a: a.tolist(),
    "equal": lambda a: a == VALUES if a.host_ptr else a.copy_to_host(),
    "dlpack": lambda a: a.__dlpack__(max_version=(1, 0)),
    "copied dlpack": lambda a: a.__dlpack__(dl_device=(1, 0), copy=True),
    "cuda array interface": lambda a: a.__cuda_array_interface__,
    "device_ptr": lambda a: a.device_ptr,
    "host_ptr": lambda a: a.host_ptr,
    "buffer's device_ptr": lambda a: a.buffer.device_ptr,
    "buffer's host_ptr": lambda a: a.buffer.host_ptr,
    "memoryview": memoryview,
    "asarray": np.asarray,
    "array": lambda a: a.__array__(),
    "numpy": lambda a: a.numpy() if a.kind in ("host", "pinned") else a.copy_to_host(),
    "update": lambda a: a.buffer.update({"": VALUES}),
    "tensors": lambda a: a.buffer.tensors(np.from_dlpack),
    "source": lambda a: gpushm.create_many(None, {"": a}),
    "gpu_data": lambda a: a.gpu_data.device_pointer,
}


@pytest.mark.parametrize("use", USES)
def test_what_needs_the_memory_raises_one_error_meanwhile(array: gpushm.Array, use: str) -> None:
    with array.suspended(), pytest.raises(gpushm.errors.StateError, match=r'"a": it is suspended: .*resume\(\)'):
        USES[use](array)
    assert (array.copy_to_host() == VALUES).all()


def test_what_needs_no_memory_works_meanwhile(array: gpushm.Array) -> None:
    with array.suspended():
        assert array.shape == VALUES.shape and list(array.buffer) == [""]
        assert array[1:, ::2].strides == (4096, 8) and array.T.shape == (1024, 4)
        assert "'a'" in repr(array) and "suspended" in array._repr_html_() and "suspended" in array.buffer._repr_html_()
        assert array.handle() and array.__dlpack_device__()


@pytest.mark.parametrize("array", ON_HOST, indirect=True)
def test_what_was_made_before_is_valid_again(array: gpushm.Array) -> None:
    made = [array.numpy(), np.asarray(array), memoryview(array), np.from_dlpack(array) if array.kind == "host" else 0]
    with array.suspended():
        assert [gpushm.as_array(one).offset for one in made[:2]] == [0, 0]
    for one in made[: 4 if array.kind == "host" else 3]:
        assert (np.asarray(one) == VALUES).all()
    del made, one


def test_a_block_resumes_at_its_end(array: gpushm.Array) -> None:
    with pytest.raises(KeyError), array.buffer.suspended(idle=True):
        raise KeyError
    assert not array.away
    with gpushm.open_many("a") as other, other.suspended(timeout=5):
        other.close()
    with gpushm.open("a") as again, again.suspended():
        assert again.away and not array.away
        again.close()


def test_a_buffer_that_is_open_twice_is_away_once_each(array: gpushm.Array) -> None:
    with gpushm.open("a") as other, other.suspended():
        assert (array.copy_to_host() == VALUES).all()
        with array.suspended():
            (found,) = gpushm.ls("a")
            assert found.away == 2 and "shared, away 2/2" in str(gpushm.ls("a"))
        found = gpushm.stat("a", holders=True)
        assert found.away == 1 and sorted(h.away for h in found.holders) == [False, True]
    assert gpushm.stat("a").away == 0 and "away" not in str(gpushm.ls("a"))


def test_a_closed_buffer_has_nothing_to_suspend(array: gpushm.Array) -> None:
    other = gpushm.open("a")
    other.suspend()
    other.close()
    for thing in (other, other.buffer):
        for call in (thing.suspend, thing.resume):
            with pytest.raises(ValueError, match="closed"):
                call()


def test_tensors_that_outlive_the_block_can_go_away_with_their_buffer(host_pool: str) -> None:
    with gpushm.create("a", (3,), "u1", pool=host_pool) as a:
        a.publish("shared")
    with pytest.warns(ResourceWarning), gpushm.open("a", "r+") as a:
        tensor, buffer = np.from_dlpack(a), a.buffer
    buffer.suspend()
    assert gpushm.stat("a").away == 1
    buffer.resume()
    assert tensor.tolist() == [0, 0, 0]
    buffer.suspend()
    del tensor
    assert gpushm.stat("a").readers == gpushm.stat("a").writers == 0
    gpushm.unlink("a")


def test_what_cannot_be_suspended_says_why(pool: str) -> None:
    kind = next(p.kind for p in gpushm.pools() if p.name == pool)
    with gpushm.create("a", (4,), "u1", pool=pool) as a:
        with pytest.raises(gpushm.errors.StateError, match="publish it first"):
            a.suspend()
        a.publish("shared")
        if kind == "mempool":
            with pytest.raises(gpushm.errors.NotSupported, match="vmm pool"), a.suspended():
                pass
    if kind == "host":
        with gpushm.open("a", "c") as a, pytest.raises(gpushm.errors.NotSupported, match="copy-on-write"):
            a.suspend()
        with gpushm.stream("s", {"x": ((4,), "u1")}, pool=pool) as s, pytest.raises(
            gpushm.errors.NotSupported, match="stream"
        ):
            s.buffer.suspend()
    gpushm.unlink("a")


@pytest.mark.parametrize("words", [{"idle": 1, "timeout": 1}, {"timeout": -1}, {"timeout": "1"}])
def test_wrong_arguments_change_nothing(array: gpushm.Array, words: dict[str, Any]) -> None:
    for call in (array.suspend, array.resume, array.buffer.resume):
        with pytest.raises((TypeError, ValueError)):
            call(**words)
    assert not array.away


# ---- waiting ----


def test_other_threads_run_while_the_daemon_does_not_reply(other_daemon: Daemon) -> None:
    with gpushm.connect(other_daemon.socket) as c, c.create("a", (4,), "u1", pool="host") as a:
        a.publish("shared")
        for call, away in ((a.suspend, True), (a.resume, False)):
            other_daemon.signal(signal.SIGSTOP)
            done = threading.Thread(target=call)
            done.start()
            done.join(0.05)  # with the GIL held over there, this would not return
            assert done.is_alive()
            other_daemon.signal(signal.SIGCONT)
            done.join()
            assert a.away is away


def test_a_resume_has_a_timeout_and_can_be_repeated(other_daemon: Daemon) -> None:
    with gpushm.connect(other_daemon.socket) as c, c.create("a", (4,), "u1", pool="host") as a:
        a.fill(3)
        a.publish("shared")
        a.suspend()
        other_daemon.signal(signal.SIGSTOP)
        with pytest.raises(gpushm.errors.Timeout):
            a.resume(0.05)
        assert a.away
        other_daemon.signal(signal.SIGCONT)
        a.resume()
        assert a.tolist() == [3, 3, 3, 3]


def test_ctrl_c_ends_a_resume_if_its_handler_raises(other_daemon: Daemon) -> None:
    seen: list[int] = []

    def handler(number: int, frame: object) -> None:
        seen.append(number)
        if len(seen) == 2:
            raise KeyboardInterrupt

    def press() -> None:
        for n in range(2):
            os.kill(os.getpid(), signal.SIGINT)
            while len(seen) == n:
                time.sleep(0.01)

    with gpushm.connect(other_daemon.socket) as c, c.create("a", (4,), "u1", pool="host") as a:
        a.fill(3)
        a.publish("shared")
        a.suspend()
        other_daemon.signal(signal.SIGSTOP)
        before = signal.signal(signal.SIGINT, handler)
        pressing = threading.Timer(0.05, press)
        pressing.start()
        with pytest.raises(KeyboardInterrupt):
            a.resume()
        pressing.join()
        signal.signal(signal.SIGINT, before)
        other_daemon.signal(signal.SIGCONT)
        assert a.away
        a.resume()
        assert a.tolist() == [3, 3, 3, 3]


def test_threads_that_copy_meet_no_unmapped_memory(array: gpushm.Array) -> None:
    wrong: list[BaseException] = []

    def copy() -> None:
        try:
            for _ in range(200):
                with suppress(gpushm.errors.StateError):
                    assert (array.copy_to_host() == VALUES).all()
        except BaseException as e:
            wrong.append(e)

    threads = [threading.Thread(target=copy) for _ in range(2)]
    for t in threads:
        t.start()
    while any(t.is_alive() for t in threads):
        with suppress(gpushm.errors.StateError), array.suspended():
            pass
    assert not wrong and not array.away


# ---- other processes ----


def test_a_use_of_suspended_memory_ends_the_process_and_says_why() -> None:
    with gpushm.create_many("a", {"w": VALUES}, pool="host") as b:
        b.publish()
    code = 'import gpushm; b = gpushm.open_many("a"); n = b["w"].numpy(); b.suspend(); n.sum()'
    env = os.environ | {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=120)
    assert done.returncode == -signal.SIGSEGV
    assert 'a use of array "w" of buffer "a"' in done.stderr and "suspended" in done.stderr
    assert "resume()" in done.stderr and "read-only" not in done.stderr
    gpushm.unlink("a")


def test_a_child_can_not_suspend_its_parents_buffer(array: gpushm.Array) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            array.suspend()
        except gpushm.errors.ForkError:
            os._exit(3)
        finally:
            os._exit(4)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 3
