# SPDX-License-Identifier: MIT
"""For every test of the package: a daemon, its pools, and counts of resources before and after.

Run without a driver for host pools alone, or with LD_LIBRARY_PATH on build/fakecuda for all kinds.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import ran

from daemon import Daemon

DAEMON = Daemon()
os.environ["GPUSHM_SOCKET"] = DAEMON.socket
# What a test closes is gone at its end.
os.environ["NUMBA_CUDA_MAX_PENDING_DEALLOCS_COUNT"] = "0"

import gpushm  # noqa: E402

POOLS = [p.name for p in gpushm.pools() if not p.failed]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Stops the daemon. A file that is skipped as a whole is no failure."""
    DAEMON.remove()
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints counts as Check does, and what ran, for tests/run.sh."""
    for line in ran.lines():
        terminalreporter.line(line)
    found = {kind: len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "error", "skipped")}
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.line(f"skipped: {report.nodeid}: {report.longrepr[2]}")
    n = sum(found.values())
    share = 100 * (found["passed"] + found["skipped"]) // max(n, 1)
    terminalreporter.line(f"{share}%: Checks: {n}, Failures: {found['failed']}, Errors: {found['error']}")


def pytest_report_header() -> str:
    """Prints which package is tested, and over which pools."""
    return f"gpushm from {Path(gpushm.__file__).parent}, pools: {', '.join(POOLS)}"


@pytest.fixture(params=POOLS)
def pool(request: pytest.FixtureRequest) -> str:
    """Each pool of the daemon."""
    return str(request.param)


@pytest.fixture
def gpu(pool: str) -> int:
    """The GPU of the pool; 0 for memory of the host."""
    return next(p.device or 0 for p in gpushm.pools() if p.name == pool)


@pytest.fixture
def host_pool() -> str:
    """The pool that every daemon has."""
    return "host"


@pytest.fixture
def other_daemon() -> Iterator[Daemon]:
    """A daemon that the test may end."""
    daemon = Daemon()
    yield daemon
    daemon.remove()


def handed_out() -> int:
    """The number of the fake driver's objects that this process has not given back."""
    try:
        return int(ctypes.CDLL("libcuda.so.1").fakecuda_handed_out())
    except (OSError, AttributeError):
        return 0


def open_fds() -> list[str]:
    """The targets of this process's descriptors."""
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except FileNotFoundError:
            continue
    return sorted(found)


@pytest.fixture(scope="session", autouse=True)
def warmed_up() -> None:
    """Makes what a process makes once: the connection, links to wait on, the driver's state, a pool's descriptor."""
    for name in POOLS:
        with gpushm.create("warm", 1, pool=name) as a:
            a.publish()
            with gpushm.open("warm"):
                pass
        gpushm.unlink("warm")
    # On a busy machine the time is over before the wait begins, which is NotFound and makes no link.
    with suppress(gpushm.errors.Timeout):
        for seconds in (0.001, 0.1, 1, 10):
            with suppress(gpushm.errors.NotFound):
                gpushm.wait("nothing", seconds)
    with suppress(gpushm.errors.Timeout):
        asyncio.run(gpushm.wait_async("nothing", 0))


@pytest.fixture(scope="module", autouse=True)
def frozen(warmed_up: None) -> None:
    """Takes objects that stay (modules, reports) out of each test's gc.collect(), which is half of the suite's time."""
    gc.collect()
    gc.freeze()


def leases_left() -> int:
    """The number of leases; waits for those of children, because the daemon sends no reply to a close."""
    end = time.monotonic() + 60
    while (left := gpushm.status().leases) and time.monotonic() < end:
        pass
    return int(left)


def buffers_left() -> list[gpushm.info.BufferInfo]:
    """The buffers that are still there; waits for those that end with a lease: of a child, or closed a moment ago."""
    end = time.monotonic() + 10
    while (left := gpushm.ls()) and time.monotonic() < end:
        pass
    return left


@pytest.fixture(autouse=True)
def nothing_is_left(frozen: None) -> Iterator[None]:
    """Counts descriptors, driver objects, buffers and leases before and after each test."""
    gc.collect()
    fds, objects = open_fds(), handed_out()
    yield
    gc.collect()
    left = buffers_left()
    for buffer in left:
        if buffer.name:
            with suppress(gpushm.errors.NotFound):
                gpushm.unlink(buffer.name)
    assert left == []
    assert leases_left() == 0
    assert handed_out() == objects
    # Only their number: a socket that was closed and opened again has another target. Another thread may close it.
    end = time.monotonic() + 5
    while len(now := open_fds()) != len(fds) and time.monotonic() < end:
        time.sleep(0.01)
    assert len(now) == len(fds), "\n".join(["before:", *fds, "now:", *now])


@pytest.fixture
def in_child(tmp_path: Path) -> Callable[[str], str]:
    """Runs a piece of Python in a new process, and returns what it printed."""
    import subprocess

    def run(code: str, *, status: int = 0, **env: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | env, timeout=300
        )
        assert done.returncode == status, done.stderr
        return done.stdout

    return run
