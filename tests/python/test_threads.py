# SPDX-License-Identifier: MIT
"""Threads: a wait blocks no other thread, a close does not unmap the memory of a running copy, Ctrl-C works."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gpushm
import numpy as np
import pytest


def test_a_thread_that_waits_lets_others_run(pool: str) -> None:
    with ThreadPoolExecutor(8) as threads:
        waiting = [threads.submit(gpushm.open, "later", timeout=None) for _ in range(4)]
        waiting += [threads.submit(gpushm.wait, "later", 60) for _ in range(2)]
        while gpushm.status().waiting < 6:
            pass
        with gpushm.create("later", 4, pool=pool) as a:
            a[:] = 3
            a.publish()
        for got in waiting:
            if (array := got.result(60)) is not None:
                assert array[0] == 3
                array.close()
        del array, got, waiting
    gpushm.unlink("later")
    # One link for waiting is kept, and one for calls of asyncio.
    while gpushm.status().peers > 3:
        pass


def test_a_create_that_waits_for_room_gets_it(host_pool: str) -> None:
    room = next(p for p in gpushm.pools() if p.name == host_pool).max_buffer
    big = gpushm.create("big", room - 8192, pool=host_pool)
    peers = gpushm.status().peers
    with ThreadPoolExecutor(1) as threads:
        second = threads.submit(gpushm.create, "second", 2**20, pool=host_pool, wait=None)
        # The watch has a connection of its own.
        while gpushm.status().peers == peers:
            pass
        big.close()
        second.result(60).close()


def test_threads_create_and_open_independently(pool: str) -> None:
    def work(i: int) -> None:
        for n in range(20):
            name = f"t/{i}"
            want = np.full((16, 16), i * 100 + n, "int32")
            with gpushm.create(name, want.shape, want.dtype, pool=pool) as a:
                a.copy_from_host(want)
                a.publish()
                with gpushm.open(name) as b:
                    assert np.array_equal(b[::2].copy_to_host(), want[::2])
            gpushm.unlink(name)

    with ThreadPoolExecutor(6) as threads:
        list(threads.map(work, range(6)))


def test_a_close_during_a_copy_is_refused(pool: str) -> None:
    refused, rounds = 0, 0
    while refused == 0 and rounds < 1000:
        rounds += 1
        a = gpushm.create("a", (64, 1024, 8), "uint8", pool=pool)
        out = np.empty((64, 1024, 8), "uint8").transpose(1, 0, 2)
        view = a.transpose(1, 0, 2)
        started = threading.Event()

        def copy(started: threading.Event = started, view: gpushm.Array = view, out: np.ndarray = out) -> None:
            started.set()
            view.copy_to_host(out)

        thread = threading.Thread(target=copy)
        thread.start()
        started.wait()
        try:
            view.close()
        except BufferError as e:
            assert "call" in str(e)
            refused += 1
        except ValueError:
            pass
        thread.join()
        view.close()
        del copy
        a.close()
    assert refused, "never met a copy under way"


def test_sealing_during_a_copy_is_refused(pool: str) -> None:
    source = np.ones((8, 1024, 64), "uint8").transpose(2, 1, 0)
    refused, rounds = 0, 0
    while refused == 0 and rounds < 1000:
        rounds += 1
        with gpushm.create("a", source.shape, "uint8", pool=pool) as a, ThreadPoolExecutor(1) as threads:
            copying = threads.submit(a.copy_from_host, source)
            try:
                a.publish()
            except gpushm.errors.InUse as e:
                assert "1 copies" in str(e)
                refused += 1
                copying.result(60)
                a.publish()
            else:
                # The copy was done before, or came too late.
                assert copying.exception(60) is None or isinstance(copying.exception(), gpushm.errors.ReadOnly)
            del copying
        gpushm.unlink("a")
    assert refused, "never met a copy under way"


def test_a_buffer_is_read_only_while_it_is_being_sealed(tmp_path: Path, in_child: Callable[..., str]) -> None:
    if "pinned" not in {p.name for p in gpushm.pools()} or "fakecuda" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("no fake driver")
    code = """
import gpushm, os, threading
a = gpushm.create("a", 4096, pool="pinned")
view = a[:]
seals = threading.Thread(target=a.publish, daemon=True)
seals.start()
refused = ""
while "call of another thread" not in refused:
    try:
        a.close()
    except gpushm.errors.InUse as e:
        refused = str(e)
assert memoryview(a).readonly
try:
    a.copy_from_host(bytes(4096))
except gpushm.errors.ReadOnly:
    print("refused")
with open(os.environ["FAKECUDA_HANG_UNTIL"], "w"):
    seals.join()
print(a.state)
a.unlink()
"""
    hang = {"FAKECUDA_HANG": "2:cuMemSetAccess", "FAKECUDA_HANG_UNTIL": str(tmp_path / "on")}
    assert in_child(code, **hang).split() == ["refused", "sealed"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_the_gil_is_released_while_the_daemon_is_asked(in_child: Callable[..., str]) -> None:
    code = """
import gpushm, threading
waiting = threading.Thread(target=gpushm.wait, args=("never", 0.5))
threading.excepthook = lambda a: print(a.exc_type.__name__)
waiting.start()
n = 0
while waiting.is_alive():
    n += 1
print(n > 1000)
"""
    assert in_child(code).split() == ["Timeout", "True"]


def test_ctrl_c_ends_a_wait() -> None:
    # A process that a shell without job control starts in the background ignores SIGINT, and so do its children.
    code = """
import gpushm, signal
signal.signal(signal.SIGINT, signal.default_int_handler)
print("waiting", flush=True)
try:
    gpushm.{}
except KeyboardInterrupt:
    print("heard", len(gpushm.pools()) > 0)
"""
    for call in ("wait('never')", "open('never', timeout=None)"):
        child = subprocess.Popen([sys.executable, "-c", code.format(call)], stdout=subprocess.PIPE, text=True)
        assert child.stdout is not None and child.stdout.readline() == "waiting\n"
        while gpushm.status().waiting == 0:
            pass
        child.send_signal(signal.SIGINT)
        assert child.communicate(timeout=60)[0] == "heard True\n"


def test_a_tensor_can_be_dropped_by_another_thread(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool) as a:
        a.publish("shared")
        tensors = [a.__dlpack__(max_version=(1, 0)) for _ in range(100)]
        with pytest.raises(gpushm.errors.InUse, match="100 DLPack tensors"):
            a.close()
        with ThreadPoolExecutor(4) as threads:
            list(threads.map(lambda _: tensors.pop() and None, range(100)))
        a.close()
    gpushm.unlink("a")


def test_a_reconnect_during_a_disconnect_leaves_one_link(tmp_path: Path, in_child: Callable[..., str]) -> None:
    """A connection with deferred closes takes long to end; meanwhile another thread connects again."""
    if "gpu0" not in {p.name for p in gpushm.pools()} or "fakecuda" not in os.environ.get("LD_LIBRARY_PATH", ""):
        pytest.skip("no fake driver")
    code = """
import gpushm, os, threading
from pathlib import Path
def sockets():
    return sum(fd.readlink().name.startswith("socket:") for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink())
with gpushm.numba.defer_cleanup():
    gpushm.create("a", 4, pool="gpu0").close()
peers = gpushm.status().peers
ends = threading.Thread(target=gpushm._core._disconnect)
ends.start()
while gpushm.status().peers == peers:
    pass
with open(os.environ["FAKECUDA_HANG_UNTIL"], "w"):
    ends.join()
gpushm.status()
print(sockets())
"""
    hang = {"FAKECUDA_HANG": "1:cuMemUnmap", "FAKECUDA_HANG_UNTIL": str(tmp_path / "on")}
    assert in_child(code, **hang) == "1\n"
