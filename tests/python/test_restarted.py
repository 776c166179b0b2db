# SPDX-License-Identifier: MIT
"""Calls that create a buffer in more than one request, while the daemon restarts."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import gpushm
import pytest

from daemon import Daemon

RESTARTS = 10


def create_sized(c: gpushm.types.Connection) -> None:
    """The arrays come after the memory."""
    c.create_many("again", {"x": ((5,), "float32")}, nbytes=1000).discard()


def open_or_create(c: gpushm.types.Connection) -> None:
    """So does the array here."""
    c.open_or_create("again", (5,), "float32").discard()


CREATORS = [create_sized, open_or_create]


@pytest.mark.parametrize("create", CREATORS)
def test_a_call_that_creates_survives_a_restart(
    create: Callable[[gpushm.types.Connection], None], other_daemon: Daemon
) -> None:
    """A daemon that was stopped finds both: the first request, and the signal to restart."""
    with gpushm.connect(other_daemon.socket) as c, ThreadPoolExecutor() as pool:
        for _ in range(RESTARTS):
            other_daemon.signal(signal.SIGSTOP)
            created = pool.submit(create, c)
            time.sleep(0.02)
            other_daemon.signal(signal.SIGUSR2)
            other_daemon.signal(signal.SIGCONT)
            created.result()
