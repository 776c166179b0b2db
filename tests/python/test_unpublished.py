# SPDX-License-Identifier: MIT
"""Buffers that end before they are published: each end is said, once, with the line that made the buffer."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device

MADE: dict[str, Callable[..., Any]] = {
    "create": lambda: gpushm.create("a", 4, pool="host"),
    "create_many": lambda: gpushm.create_many("a", {"w": (4, "uint8")}, pool="host"),
    "create_like": lambda: gpushm.create_like("a", np.zeros(2, "uint8"), pool="host"),
    "Connection": lambda: gpushm.types.Connection().create("a", 4, pool="host"),
}
ENDS: dict[str, Callable[[Any], Any]] = {
    "with": lambda made: made.__exit__(None, None, None),
    "close": lambda made: made.close(),
}


@pytest.fixture(params=MADE)
def make(request: pytest.FixtureRequest) -> Callable[..., Any]:
    return MADE[request.param]


def line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


def test_the_warning_is_a_runtime_warning() -> None:
    # A ResourceWarning is hidden by default, and a DeprecationWarning outside of __main__.
    assert issubclass(gpushm.errors.UnpublishedWarning, RuntimeWarning)
    assert not issubclass(gpushm.errors.UnpublishedWarning, ResourceWarning)


@pytest.mark.parametrize("end", ENDS)
def test_closing_an_unpublished_buffer_warns(make: Callable[..., Any], end: str) -> None:
    made = make()
    with pytest.warns(gpushm.errors.UnpublishedWarning, match=r'"a".*publish\(\).*discard\(\)') as found:
        ENDS[end](made)
    assert made.closed
    assert [(w.filename, w.lineno) for w in found] == [(__file__, line_of(make))]


def test_collecting_an_unpublished_buffer_warns(make: Callable[..., Any]) -> None:
    made = make()
    with pytest.warns(gpushm.errors.UnpublishedWarning, match='"a"') as found:
        del made
        gc.collect()
    assert [(w.filename, w.lineno) for w in found] == [(__file__, line_of(make))]


def test_the_loss_is_told_beside_a_view_that_outlives_its_block() -> None:
    with pytest.warns() as found:
        with gpushm.create("a", 4, pool="host") as a:
            kept = memoryview(a)
        kept.release()
    kinds = [w.category for w in found]
    assert kinds.count(gpushm.errors.UnpublishedWarning) == 1 and kinds.count(ResourceWarning) == 1


def published(made: Any) -> None:
    made.publish()
    made.unlink()
    made.close()


def raised(made: Any) -> None:
    with pytest.raises(KeyError), made:
        raise KeyError


def discarded_within(made: Any) -> None:
    with made:
        made.discard()


QUIET: dict[str, Callable[[Any], Any]] = {
    "published": published,
    "unlinked": lambda made: (made.unlink(), made.close()),
    "discarded": lambda made: made.discard(),
    "discarded twice": lambda made: (made.discard(), made.discard(), made.close()),
    "discarded within": discarded_within,
    "an exception says enough": raised,
}


@pytest.mark.parametrize("end", QUIET)
def test_an_intended_end_gives_no_warning(make: Callable[..., Any], end: str, recwarn: pytest.WarningsRecorder) -> None:
    QUIET[end](make())
    gc.collect()
    assert not list(recwarn)
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.open("a")


def test_an_anonymous_array_gives_no_warning(pool: str, recwarn: pytest.WarningsRecorder) -> None:
    if pool == "pinned":
        gpushm.numba.pinned_array(4).close()
    with gpushm.create(None, 4, pool=pool) as a:
        a[...] = 1
    to_device([1, 2], pool=pool).close()
    assert not list(recwarn)


def test_sys_exit_within_a_block_warns() -> None:
    with pytest.warns(gpushm.errors.UnpublishedWarning), pytest.raises(SystemExit), gpushm.create("a", 4, pool="host"):
        sys.exit(0)


def test_a_warning_that_is_an_error_closes_the_buffer() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        made = gpushm.create("a", 4, pool="host")
        with pytest.raises(gpushm.errors.UnpublishedWarning):
            made.close()
        assert made.closed
        with pytest.raises(gpushm.errors.UnpublishedWarning), gpushm.create("a", 4, pool="host"):
            pass


def test_discarding_a_published_buffer_is_refused() -> None:
    with gpushm.create("a", 4, pool="host") as a:
        a.publish()
        with pytest.raises(gpushm.errors.StateError, match=r"unlink\(\)"):
            a.discard()
        a.unlink()


def test_discarding_a_buffer_in_use_is_refused() -> None:
    a = gpushm.create("a", 4, pool="host")
    kept = memoryview(a)
    with pytest.raises(gpushm.errors.InUse, match="memoryview"):
        a.discard()
    kept.release()
    view = a[1:]
    with pytest.raises(gpushm.errors.InUse, match="view"):
        view.discard()
    del view
    a.discard()


def test_a_reader_is_told_that_the_buffer_ended_unpublished(host_pool: str) -> None:
    with pytest.warns(gpushm.errors.UnpublishedWarning):
        gpushm.create("a", 4, pool=host_pool).close()
    with pytest.raises(gpushm.errors.NotFound, match=rf"process {os.getpid()} .*without publishing it"):
        gpushm.open("a")
    with pytest.raises(gpushm.errors.Timeout, match="without publishing it"):
        gpushm.open("a", timeout=0.05)
    gpushm.create("a", 4, pool=host_pool).discard()
    with pytest.raises(gpushm.errors.NotFound) as raised:
        gpushm.open("a")
    assert "publish" not in str(raised.value)


# ---- whole programs, with Python's own filters ----

LOSES = "a = gpushm.create('a', 4, pool='host')"
PROGRAMS = {
    "with": ("with gpushm.create('a', 4, pool='host') as a: a[...] = 1", True),
    "collector": (f"def f():\n    {LOSES}\nf()", True),
    "cycle": (f"def f():\n    {LOSES}\n    b = [a]\n    b.append(b)\nf()", True),
    "global at exit": (LOSES, True),
    "module at exit": (f"import sys\nsys.kept = {LOSES.removeprefix('a = ')}", True),
    "exit in the midst": (f"import sys\n{LOSES}\nsys.exit()", True),
    "published": (f"{LOSES}\na.publish()\na.unlink()", False),
    "discarded": (f"{LOSES}\na.discard()", False),
    "forked": (f"import os\n{LOSES}\nif os.fork():\n    os.wait()\n    a.discard()", False),
}


@pytest.mark.parametrize("what", PROGRAMS)
def test_a_program_that_loses_contents_is_warned_once(what: str, tmp_path: Path) -> None:
    code, warns = PROGRAMS[what]
    program = tmp_path / "program.py"
    program.write_text(f"import gpushm\n{code}\n")
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    if warns:
        line = next(n for n, text in enumerate(program.read_text().splitlines(), 1) if "create(" in text)
        assert done.stderr.count("UnpublishedWarning") == 1, done.stderr
        assert f"{program}:{line}: " in done.stderr
        assert "gpushm.create(" in done.stderr  # Python shows the line itself.
    else:
        assert done.stderr == ""
