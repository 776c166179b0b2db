# SPDX-License-Identifier: MIT
"""Garbage collection of the package's objects that refer to themselves through an object of the user's."""

from __future__ import annotations

import ctypes
import gc
import weakref
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gpushm
import numpy as np
import pytest

KINDS = {p.kind: p.name for p in gpushm.pools() if not p.failed and p.device in (0, None)}
ARRAYS = {"x": ((4, 6), "float32")}
on_gpu = pytest.mark.skipif("vmm" not in KINDS, reason="no GPU")


class Name(str):
    """A name that can have attributes."""


class Theirs:
    """A CUDA stream of some library's, which can have attributes; 1 is the legacy default stream."""

    def __init__(self, handle: int = 1) -> None:
        self.handle = handle
        self.refers_to: Any = None

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.fixture
def unlinked() -> Iterator[None]:
    yield
    for name in "ab":
        with suppress(gpushm.errors.NotFound):
            gpushm.unlink(name)


def is_collected(make: Callable[[], Any]) -> bool:
    """Whether the object that make() returns, and its cycle, live until gc.collect(), and no longer."""
    gc.collect()
    gc.disable()
    try:
        there = weakref.ref(make())
        assert there() is not None, "it is no cycle"
        gc.collect()
        return there() is None
    finally:
        gc.enable()


def array() -> Any:
    name = Name("a")
    a = gpushm.create(name, 4, pool=KINDS["host"])
    a.publish()
    name.refers_to = a  # type: ignore[attr-defined]
    return a


def buffer() -> Any:
    name = Name("a")
    b = gpushm.create(name, 4, pool=KINDS["host"]).buffer
    b.publish()
    name.refers_to = b  # type: ignore[attr-defined]
    return b


def stream() -> Any:
    name = Name("s")
    s = gpushm.stream(name, ARRAYS, pool=KINDS["host"])
    name.refers_to = s  # type: ignore[attr-defined]
    return s


def reader() -> Any:
    o = Theirs()
    o.refers_to = gpushm.follow("other", stream=o)
    return o.refers_to


def reader_with_a_timeout() -> Any:
    class Seconds(float):
        pass

    seconds = Seconds(3)
    seconds.refers_to = gpushm.follow("other", timeout=seconds)  # type: ignore[attr-defined]
    return seconds.refers_to  # type: ignore[attr-defined]


def frame_with_a_meta(s: gpushm.types.Stream) -> Any:
    f = s.frame()
    f.meta = meta = {"a": 1}
    meta["f"] = f
    return f


@pytest.mark.parametrize("make", [array, buffer, stream, reader, reader_with_a_timeout])
@pytest.mark.usefixtures("unlinked")
def test_a_cycle_is_collected(make: Callable[[], Any]) -> None:
    with gpushm.stream("other", ARRAYS, pool=KINDS["host"]):
        assert is_collected(make)


def test_a_frame_that_its_meta_has_is_collected() -> None:
    with gpushm.stream("s", ARRAYS, pool=KINDS["host"]) as s:
        assert is_collected(lambda: frame_with_a_meta(s))
        s.frame().cancel()


def test_a_connection_of_a_subclass_is_collected() -> None:
    class Mine(gpushm.types.Connection):
        pass

    def make() -> Mine:
        c = Mine()
        c.itself = c  # type: ignore[attr-defined]
        return c

    assert is_collected(make)


# ---- CUDA streams ----


@pytest.fixture
def cuda() -> Iterator[ctypes.CDLL]:
    """The driver, with a context."""
    cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    assert cuda.cuInit(0) == cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    yield cuda
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(0)


@pytest.fixture
def handle(cuda: ctypes.CDLL) -> Iterator[int]:
    """A CUstream."""
    made = ctypes.c_void_p()
    assert cuda.cuStreamCreate(ctypes.byref(made), 1) == 0
    yield made.value or 0
    assert cuda.cuStreamDestroy_v2(made) == 0


@on_gpu
@pytest.mark.usefixtures("unlinked")
def test_a_stream_on_which_a_copy_was_queued_may_have_the_array(handle: int) -> None:
    def make() -> Any:
        o = Theirs(handle)
        o.refers_to = gpushm.create("a", (4, 6), "float32", pool=KINDS["vmm"])
        o.refers_to.copy_from_host(np.zeros((4, 6), "float32"), stream=o)
        o.refers_to.publish()
        return o

    assert is_collected(make)


@on_gpu
def test_a_graph_frame_is_collected_with_its_reader(cuda: ctypes.CDLL, handle: int) -> None:
    graph = ctypes.c_void_p()
    with gpushm.stream("s", ARRAYS, pool=KINDS["vmm"]):

        def make() -> Any:
            o = Theirs()
            r = gpushm.follow("s", stream=o)
            assert cuda.cuStreamBeginCapture_v2(ctypes.c_void_p(handle), 1) == 0
            o.refers_to = r.graph(handle)
            assert cuda.cuStreamEndCapture(ctypes.c_void_p(handle), ctypes.byref(graph)) == 0
            return o.refers_to

        assert is_collected(make)
    assert cuda.cuGraphDestroy(graph) == 0


@on_gpu
def test_a_frame_that_is_collected_waits_for_copies(handle: int, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda handle, device=None: waited.append(handle))
    with gpushm.stream("s", ARRAYS, pool=KINDS["vmm"]) as s, gpushm.follow("s", "every") as r:
        for _ in range(2):
            with s.frame():
                pass

        def make() -> Any:
            o, mine = Theirs(handle), Theirs()
            f = r.next(timeout=30, stream=mine).keep()
            f["x"].copy_to_host(stream=o)
            waited.clear()
            # Garbage collection empties what was made first first: f lives longer than what it is to wait for.
            last: list[Any] = [f]
            last.append(last)
            o.refers_to = mine.refers_to = last
            return f

        assert is_collected(make)
        assert waited == [handle]
        # One frame may be held: it was released.
        r.next(timeout=30).release()
