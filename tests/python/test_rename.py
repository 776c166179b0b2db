# SPDX-License-Identifier: MIT
"""Names that change their buffer, and buffers that one of many processes makes."""

from __future__ import annotations

import subprocess
import sys
import threading
from typing import Any

import gpushm
import pytest


def made(name: str, value: int = 0) -> gpushm.Array:
    a = gpushm.create(name, 4, pool="host")
    a[...] = value
    a.publish("shared")
    return a


def value_of(name: str) -> int:
    with gpushm.open(name) as a:
        return int(a.tolist()[0])


def test_a_renamed_buffer_has_its_new_name_alone() -> None:
    with made("x", 1), made("y", 2) as y:
        gpushm.rename("x", "z")
        assert value_of("z") == 1
        with pytest.raises(gpushm.errors.NotFound):
            gpushm.open("x")
        with pytest.raises(gpushm.errors.Exists, match='"y" is taken'):
            gpushm.rename("z", "y")
        gpushm.rename("z", "y", replace=True)
        assert value_of("y") == 1 and y.tolist() == [2] * 4
    gpushm.unlink("y")
    no_name = ("never", "y"), gpushm.errors.NotFound
    wrong = (no_name, (("never", "a//b"), gpushm.errors.BadArgument), ((7, "y"), TypeError))
    for names, error in wrong:
        with pytest.raises(error):
            gpushm.rename(*names)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        gpushm.rename("x", "y", True)  # type: ignore[misc]


def test_a_replaced_name_is_told_with_its_previous_buffer() -> None:
    with made("m") as old, gpushm.watch("m") as w:
        first = w.next(60)
        assert first == ("published", "m", old.buffer.id) and first.previous is None
        new = gpushm.create("m.new", 4, pool="host")
        new.publish_as("m", replace=True)
        assert w.next(60) == ("unlinked", "m", old.buffer.id)
        what, name, number = event = w.next(60)
        assert (what, name, number) == ("published", "m", new.buffer.id)
        assert event.previous == old.buffer.id and len(event) == 3
        new.close()
    gpushm.unlink("m")


def test_one_process_creates_and_the_others_get_what_it_made() -> None:
    with gpushm.open_or_create("m", (2, 3), "int16", pool="host", attrs={"k": "v"}) as a:
        assert a.state == "filling" and not a.readonly and a.shape == (2, 3)
        with pytest.raises(gpushm.errors.NotPublished):
            gpushm.open_or_create("m", 1, timeout=0)
        with pytest.raises(gpushm.errors.Timeout):
            gpushm.open_or_create("m", 1, timeout=0.05)
        a[...] = 7
        a.publish("shared")
        with gpushm.open_or_create("m", 1, access="r+", timeout=0) as b:
            assert b.state == "shared" and b.shape == (2, 3) and b.tolist()[1][2] == 7 and not b.readonly
            assert b.buffer.attr("k") == b"v"
        with gpushm.open_or_create("m", 1, access="c") as c:
            c[...] = 8
        assert a.tolist()[0][0] == 7
    gpushm.unlink("m")
    with pytest.raises(gpushm.errors.NotFound, match="no pool"):
        gpushm.open_or_create("m", 1, pool="never")
    for wrong in ({"access": "w"}, {"dtype": "float99"}, {"mode": 0}):
        with pytest.raises((ValueError, TypeError)):
            gpushm.open_or_create("m", 1, **wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        gpushm.open_or_create(None, 1)  # type: ignore[arg-type]


def test_the_next_thread_creates_after_one_that_gave_up() -> None:
    got: list[Any] = []

    def want() -> None:
        with gpushm.open_or_create("m", 1, pool="host") as a:
            got.append(a.state)
            if a.state == "filling":
                a.publish()

    first = gpushm.open_or_create("m", 1, pool="host")
    threads = [threading.Thread(target=want) for _ in range(4)]
    for t in threads:
        t.start()
    while gpushm.status().waiting < 4:
        pass
    first.discard()
    for t in threads:
        t.join(60)
    assert sorted(got) == ["filling", "sealed", "sealed", "sealed"]
    gpushm.unlink("m")


def test_a_killed_creator_frees_the_name() -> None:
    code = "import gpushm, os\na = gpushm.open_or_create('m', 1, pool='host')\nprint(a.state, flush=True)\ninput()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as p:
        assert p.stdout and p.stdout.readline() == b"filling\n"
        p.kill()
        with gpushm.open_or_create("m", 1, pool="host", timeout=60) as a:
            assert a.state == "filling"
            a.discard()
