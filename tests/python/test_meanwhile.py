# SPDX-License-Identifier: MIT
"""Python code that runs during a call: an argument's own methods, a signal handler. It may close anything."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from typing import Any

import gpushm
import numpy as np
import pytest


@pytest.fixture
def a(pool: str) -> Iterator[gpushm.Array]:
    """An array that is being filled."""
    with gpushm.create("a", (4, 6), "float32", pool=pool) as made:
        yield made


class Closes:
    """An index, a stream or a dtype that closes something when it is read."""

    def __init__(self, close: Callable[[], None]) -> None:
        self.close = close

    def __index__(self) -> int:
        self.close()
        return 1

    def __cuda_stream__(self) -> tuple[int, int]:
        self.close()
        return 0, 1

    @property
    def dtype(self) -> np.dtype[Any]:
        self.close()
        return np.dtype("uint8")


CALLS: list[Callable[[gpushm.Array, Closes], object]] = [
    lambda a, c: a.reshape(c, -1),
    lambda a, c: a.transpose(c, 0),
    lambda a, c: a.view(c),
    lambda a, c: a._read_into(bytearray(96), c),
    lambda a, c: a._write_from(bytes(96), c),
    lambda a, c: a.__dlpack__(stream=c),
    lambda a, c: a.buffer.array(c, "uint8"),
    lambda a, c: a.buffer.array(4, c),
    lambda a, c: a.buffer.array(4, "uint8", strides=c),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_call_whose_argument_closes_its_array_is_refused(a: gpushm.Array, call: Any) -> None:
    with pytest.raises(ValueError):
        call(a, Closes(a.close))
    assert a.closed


def test_a_close_by_the_key_of_a_subscript_is_refused(a: gpushm.Array) -> None:
    view = a[1:]
    for close in (view.close, a.close, a.buffer.close):
        for key in ((Closes(close), 1), (1, Closes(close)), slice(Closes(close), 3)):
            with pytest.raises(gpushm.errors.InUse, match="alive are"):
                view[key]
    view.close()


def test_an_interface_of_an_array_closed_meanwhile_is_refused(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with gpushm.create("a", 4, [("x", "f4")], pool=pool) as a:
        if not a.device_ptr:
            return
        monkeypatch.setattr("gpushm._dtype.fields", lambda descr: a.close())
        with pytest.raises(ValueError, match="closed"):
            _ = a.__cuda_array_interface__


def test_a_wait_ends_when_a_handler_closes_its_watch() -> None:
    with gpushm.watch("never") as w:
        before = signal.signal(signal.SIGALRM, lambda *_: w.close())
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01)
            with pytest.raises(ValueError, match="closed"):
                w.next()
        finally:
            signal.signal(signal.SIGALRM, before)
