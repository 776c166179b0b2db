# SPDX-License-Identifier: MIT
"""Repeated work must not use more memory each time: counts Python's blocks, and malloc's bytes."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Callable
from contextlib import suppress
from itertools import pairwise

import gpushm
import numpy as np
import pytest

TIMES = 200


class Mallinfo(ctypes.Structure):
    """struct mallinfo2 of malloc.h; uordblks: bytes in use."""

    _names = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


# A lookup keeps the name it was done with in the cache of all types, 4,096 names: one that is a new string each time
# (PyObject_GetAttrString() makes one) takes a block in each call until the cache is full, and is no leak.
forget_names: Callable[[], None] = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache


def in_use() -> tuple[int, int]:
    """Python's blocks, and malloc's bytes."""
    gc.collect()
    forget_names()
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = Mallinfo
    return sys.getallocatedblocks(), mallinfo().uordblks


def attach() -> None:
    with gpushm.open("a") as a:
        a[1:].T.reshape(-1, order="F").view("uint8")


def views() -> None:
    with gpushm.open("a") as a:
        for what in (lambda: a[..., None, ::2], lambda: a.T, lambda: a[0].split(2), lambda: a.ravel(), lambda: list(a),
                     lambda: (a.shape, a.strides, a.dtype, a.flags, a.name, a.pool, a.state, a.descr, a.typestr),
                     lambda: (repr(a), repr(a.buffer), a.device_ptr, a.host_ptr, a.buffer.keys()), a.buffer.items):
            what()


def exports() -> None:
    with gpushm.open("a") as a:
        a.__dlpack__(max_version=(1, 0))
        a.__dlpack__(dl_device=(1, 0), copy=True)
        a.copy_to_host()
        np.asarray(a)
        if a.device_ptr:
            assert a.__cuda_array_interface__
        if a.host_ptr:
            memoryview(a).release()
            a.numpy()
        with suppress(BufferError):
            a.__dlpack__()


def left_behind() -> None:
    with pytest.warns(ResourceWarning), gpushm.open("a") as a:
        tensor = a[1:].__dlpack__(max_version=(1, 0))
    del tensor, a


def created() -> None:
    with gpushm.create("b", (4, 4), "float32", attrs={"k": b"v"}, order="F") as b:
        b[:] = 1
    with gpushm.create_many("b", {"x": ((2, 2), [("f", "i4")]), "y": (3, "bfloat16")}) as b:
        assert (b["x"]["f"].shape, b.get("z"), "x" in b, b.attr("k")) == ((2, 2), None, True, None)


def looked() -> None:
    for what in (gpushm.ls, gpushm.pools, gpushm.status, lambda: gpushm.stat("a", holders=True)):
        what()
    gpushm.wait("a")


NO_CALLS: list[Callable[[], object]] = [
    lambda: gpushm.open("none"), lambda: gpushm.open("a", "w"), lambda: gpushm.open("a", timeout=-1),
    lambda: gpushm.open(7), lambda: gpushm.open("a", nonsense=1), lambda: gpushm.open("a", shape=10**9),
    lambda: gpushm.open("a", array="none"), lambda: gpushm.create("a", 4), lambda: gpushm.create("b", "x"),
    lambda: gpushm.create("b", 4, ">f4"), lambda: gpushm.create_many("b", {"x": (4, "u1"), "y": object()}),
    lambda: gpushm.create("b", 4, attrs={"k": object()}), lambda: gpushm.create("b", 4, pool="none"),
]
NO_METHODS: list[Callable[[gpushm.Array], object]] = [
    lambda a: a[0, 0, 0], lambda a: a["x"], lambda a: a[[1]], lambda a: a.reshape(7), lambda a: a.view("none"),
    lambda a: a.publish(), lambda a: a.publish("x"), lambda a: a.copy_from_host(1), lambda a: a.copy_to_host(b"x"),
    lambda a: a.__dlpack__(dl_device=(4, 0)), lambda a: a.transpose(3, 4), lambda a: a.copy_to_host(stream="x"),
    lambda a: a.buffer["none"],
]


def refused() -> None:
    for call in NO_CALLS:
        with pytest.raises(Exception):  # noqa: B017
            call()
    with gpushm.open("a") as a:
        for method in NO_METHODS:
            with pytest.raises(Exception):  # noqa: B017
                method(a)
        view = a[1:]
        with pytest.raises(gpushm.errors.InUse):
            a.close()
        del view


def connected() -> None:
    with gpushm.connect() as c:
        c.open("a").close()
    with suppress(gpushm.Error):
        gpushm.connect("/none")


def grown(work: Callable[[], object]) -> tuple[int, int]:
    """Blocks and bytes that TIMES calls add each time: free lists and caches grow once or twice, a leak always."""
    counts = []
    for _ in range(5):
        for _ in range(TIMES):
            work()
        counts.append(in_use())
    blocks, malloced = (min(b - a for a, b in pairwise(column)) for column in zip(*counts, strict=True))
    return blocks, malloced


@pytest.mark.parametrize("work", [attach, views, exports, left_behind, created, looked, refused, connected])
def test_memory_stays_constant_in_repeated_work(pool: str, work: Callable[[], None]) -> None:
    with gpushm.create("a", (4, 6), "float32", pool=pool) as a:
        a.publish()
        blocks, malloced = grown(work)
        assert blocks < TIMES // 2 and malloced < TIMES * 16
    gpushm.unlink("a")


@pytest.mark.skipif(not sys.getallocatedblocks(), reason="with PYTHONMALLOC=malloc Python does not count its blocks")
def test_one_block_that_each_call_leaves_is_counted() -> None:
    left: list[object] = []
    assert TIMES <= grown(lambda: left.append(object()))[0] < 2 * TIMES


def test_names_in_the_cache_of_types_are_not_counted() -> None:
    before, _ = in_use()
    for name in [f"none{i}" for i in range(1000)]:
        assert not hasattr(before, name)
    assert in_use()[0] - before < TIMES // 2
