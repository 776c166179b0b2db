# SPDX-License-Identifier: MIT
"""events(): what the daemon logs, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import gpushm
import pytest


def lives(name: str) -> int:
    with gpushm.create(name, 4, pool="host") as a:
        a.publish()
        number = a.buffer.id
    gpushm.unlink(name)
    return number


def test_every_event_of_a_buffer_is_told_in_order() -> None:
    events = gpushm.events()
    assert events.next(0) is None
    number = lives("a")
    for expected in ("created", "published", "closed", "unlinked", "freed"):
        e = events.next(60)
        assert e is not None and (e.type, e.name, e.buffer, e.pool) == (expected, "a", number, "host")
        assert (e.uid, e.pid) == ((None, 0) if expected == "freed" else (os.getuid(), os.getpid()))
        assert abs(e.time - time.time()) < 60 and e.nbytes >= 4 and e.former is None
    assert events.next(0.01) is None and events.lost == 0


def test_a_filter_lets_only_its_events_through() -> None:
    lives("a")
    assert [e.type for e, _ in zip(gpushm.events("published", "freed", since=None), range(2), strict=False)] == [
        "published",
        "freed",
    ]
    events = gpushm.events("created", since=1e-9)
    assert events.next(0) is None
    with pytest.raises(ValueError, match="nonsense"):
        gpushm.events("nonsense")


def test_a_refusal_has_a_reason() -> None:
    events = gpushm.events("refused")
    with gpushm.create("a", 4, pool="host") as a:
        a.publish()
        with pytest.raises(gpushm.errors.ReadOnly):
            gpushm.open("a", "r+")
    gpushm.unlink("a")
    e = events.next(60)
    assert e is not None and (e.verb, e.code) == ("open", "READ_ONLY") and "sealed" in str(e.text)


def test_a_task_follows_events() -> None:
    async def follow() -> list[str]:
        events = gpushm.events("created", "unlinked")
        lives("b")
        return [(await anext(events)).type, (await anext(events)).type]

    assert asyncio.run(asyncio.wait_for(follow(), 60)) == ["created", "unlinked"]


def test_events_go_on_after_a_restart(other_daemon: Any) -> None:
    with gpushm.connect(other_daemon.socket) as c:
        events = gpushm.events(connection=c)
        other_daemon.kill()
        other_daemon.start()
        e = None
        while e is None:
            try:
                e = events.next(1)
            except gpushm.errors.DaemonGone:
                continue
        assert e.type == "started"
