# SPDX-License-Identifier: MIT
"""Streams: frames from a producer to readers, in one process and between processes."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar

import gpushm
import numpy as np
import pytest

from daemon import Daemon

KINDS = {p.name: p.kind for p in gpushm.pools()}
# A mempool has no read-only mapping, and so no streams.
POOLS = [p.name for p in gpushm.pools() if not p.failed]
STREAM_POOLS = [name for name in POOLS if KINDS[name] != "mempool"]
U32, U64 = ctypes.c_uint32, ctypes.c_uint64
ARRAYS = {"x": ((4, 6), "float32"), "n": ((), "int64")}


@pytest.fixture(params=STREAM_POOLS)
def pool(request: pytest.FixtureRequest) -> str:
    """Each pool that can have a stream."""
    return str(request.param)


@pytest.fixture
def s(pool: str) -> Iterator[gpushm.types.Stream]:
    with gpushm.stream("s", ARRAYS, slots=4, pool=pool) as stream:
        yield stream


def fill(stream: gpushm.types.Stream, *numbers: int) -> None:
    for number in numbers:
        with stream.frame(timeout=10) as f:
            f["x"].fill(number)
            f["n"].fill(number)


def value(f: gpushm.types.Frame) -> int:
    x = f["x"].copy_to_host()
    assert (x == x[0, 0]).all() and f["n"].copy_to_host() == x[0, 0]
    return int(x[0, 0])


# ---- frames ----


def test_every_gets_each_frame_and_latest_the_newest(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every") as every, gpushm.follow("s", "latest") as latest:
        fill(s, 1, 2, 3)
        assert [value(every.next(timeout=5)) for _ in range(3)] == [1, 2, 3]
        f = latest.next(timeout=5)
        assert value(f) == 3 and f.seq == 3 and f.skipped == 0 and f.ok()
        fill(s, 4, 5, 6)
        f = latest.next(timeout=5)
        assert value(f) == 6 and f.skipped == 2
        with pytest.raises(gpushm.errors.Timeout, match="no frame"):
            latest.next(timeout=0)
        with pytest.raises(gpushm.errors.Timeout, match="no frame in that time"):
            latest.next(timeout=0.01)


def test_latest_begins_with_the_newest_frame(s: gpushm.types.Stream) -> None:
    fill(s, 7, 8)
    with gpushm.follow("s") as reader:
        assert value(reader.next(timeout=5)) == 8


def test_share_gives_each_frame_to_one_reader(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "share") as a, gpushm.follow("s", "share") as b:
        fill(s, 1, 2, 3)
        taken = [value(r.next(timeout=5)) for r in (a, b, a)]
        assert taken == [1, 2, 3]
        with pytest.raises(gpushm.errors.Timeout):
            b.next(timeout=0)


def test_a_loop_ends_with_the_stream(pool: str) -> None:
    with gpushm.stream("s", ARRAYS, pool=pool) as s:
        reader = gpushm.follow("s", "every")
        fill(s, 1, 2)
    assert [value(f) for f in reader] == [1, 2]
    with pytest.raises(gpushm.errors.StreamEnded) as e:
        reader.next()
    assert isinstance(e.value, EOFError) and reader.stats().state == "ended"
    reader.close()


def test_a_frame_has_a_time_a_slot_and_named_arrays(s: gpushm.types.Stream) -> None:
    before = time.monotonic()
    with s.frame() as f:
        assert f.time is None and f.seq == 1
    with gpushm.follow("s") as reader:
        f = reader.next(timeout=5)
        assert f.time is not None and before <= f.time <= time.monotonic()
        assert f.slot == 0 and list(f) == f.keys() == ["x", "n"] and len(f) == 2
        assert "x" in f and "y" not in f
        assert set(dict(f)) == {"x", "n"}
        with pytest.raises(KeyError, match="y"):
            f["y"]
        with pytest.raises(TypeError):
            f[0]  # type: ignore[index]


def test_an_error_in_the_block_cancels_the_frame(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every") as reader:
        with pytest.raises(ZeroDivisionError), s.frame() as f:
            f["n"].fill(1 // 0)
        assert f.closed
        fill(s, 5)
        frame = reader.next(timeout=5)
        assert value(frame) == 5 and frame.seq == 1


def test_a_second_frame_is_refused_while_one_is_being_filled(s: gpushm.types.Stream) -> None:
    f = s.frame()
    with pytest.raises(gpushm.errors.StateError, match="being filled"):
        s.frame()
    f.cancel()
    f.cancel()
    f = s.frame()
    del f  # A frame without an owner is cancelled.
    s.frame().publish()
    assert s.stats().newest == 1


def test_a_readers_frame_is_read_only(s: gpushm.types.Stream) -> None:
    fill(s, 1)
    with gpushm.follow("s") as reader:
        f = reader.next(timeout=5)
        assert f["x"].readonly
        with pytest.raises(gpushm.errors.ReadOnly):
            f["x"].copy_from_host(np.zeros((4, 6), "float32"))
        with pytest.raises(gpushm.errors.ReadOnly, match="producer"):
            f.meta = b"x"
        with pytest.raises(gpushm.errors.ReadOnly):
            f.resize("x", 1)
        with pytest.raises(gpushm.errors.ReadOnly):
            f.publish()
        with pytest.raises(gpushm.errors.ReadOnly):
            f.cancel()
    with s.frame() as own, pytest.raises(gpushm.errors.StateError):
        own.release()


# ---- the end of frames ----


def test_an_array_closes_with_its_frame(s: gpushm.types.Stream) -> None:
    fill(s, 1)
    with gpushm.follow("s") as reader:
        f = reader.next(timeout=5)
        x, view = f["x"], f["x"][0]
        f.release()
        f.release()
        assert f.closed and x.closed and view.closed and f.seq == 1 and f.meta == b""
        for use in (lambda: x.shape, lambda: f["x"], f.ok, f.keep, f.keys, lambda: x.copy_to_host()):
            with pytest.raises(ValueError, match=r"released|closed"):
                use()
    with s.frame() as own:
        mine = own["x"]
    assert mine.closed
    with pytest.raises(ValueError, match="published"):
        own["x"]


def test_the_loop_keeps_as_many_frames_as_max_held(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every", max_held=2) as reader:
        fill(s, 1, 2, 3)
        first, second = reader.next(timeout=5), reader.next(timeout=5)
        assert (value(first), value(second)) == (1, 2)
        third = reader.next(timeout=5)
        assert first.closed and not second.closed and value(third) == 3


def test_the_loop_leaves_a_kept_frame_alone(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every", max_held=2) as reader:
        fill(s, 1, 2, 3)
        kept = reader.next(timeout=5).keep()
        with reader.next(timeout=5) as f:
            with pytest.raises(gpushm.errors.LimitReached, match="max_held"):
                reader.next(timeout=5)
            assert value(f) == 2
        assert f.closed and value(reader.next(timeout=5)) == 3 and value(kept) == 1
        kept.release()


def test_a_dropped_frame_gives_its_slot_back(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every", max_held=3) as reader:
        fill(s, 1, 2)
        f = reader.next(timeout=5).keep()
        assert reader.stats().held == 1
        del f
        gc.collect()
        assert reader.stats().held == 0


def test_an_array_keeps_its_frame_held(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every", max_held=3) as reader:
        fill(s, 1, 2, 3)
        one, row = reader.next(timeout=5)["n"], reader.next(timeout=5)["x"][1]
        tensor = reader.next(timeout=5)["n"].__dlpack__(max_version=(1, 0))
        gc.collect()
        assert reader.stats().held == 3 and one.copy_to_host() == 1 and row.copy_to_host()[0] == 2
        del tensor
        assert reader.stats().held == 2
        row.close()
        assert reader.stats().held == 1
        del one
        assert reader.stats().held == 0


def test_memory_stays_under_a_numpy_array(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, pool=host_pool) as s, gpushm.follow("s", "every") as reader:
        with s.frame() as f:
            mine = f["x"].numpy()
            mine[:] = 3
        frame = reader.next(timeout=5)
        theirs, view = frame["x"].numpy(), memoryview(frame["n"])
        assert (theirs == 3).all()
    # Both sides have ended, and their memory stays.
    (left,) = gpushm.streams()
    assert (left.name, left.state, left.readers) == ("", "ended", [])
    mine[:] = 4
    assert (theirs == 4).all() and len(view.tobytes()) == 8
    with pytest.raises(gpushm.Error):
        gpushm.follow("s", timeout=0)
    del mine, theirs, view


def test_the_producer_overwrites_the_array_of_a_reader_that_left(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, slots=2, pool=host_pool, limit=None) as s:
        with gpushm.follow("s", "every") as reader:
            fill(s, 1)
            theirs = reader.next(timeout=5)["x"].numpy()
        assert s.stats().readers == 0
        fill(s, 2, 3, 4, 5)
        assert (theirs > 1).any()
        del theirs


def test_a_stream_ends_while_its_producer_has_a_numpy_array(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, pool=host_pool) as s:
        reader = gpushm.follow("s", "every", timeout=20)
        with s.frame() as f:
            mine = f["x"].numpy()
    with reader:
        assert len(list(reader)) == 1
    del mine


def test_a_reader_closes_its_frame_and_may_be_closed_twice(s: gpushm.types.Stream) -> None:
    reader = gpushm.follow("s", "every")
    fill(s, 1)
    f = reader.next(timeout=5)
    with pytest.raises(gpushm.errors.StateError, match="belongs to a stream"):
        f["x"].buffer.close()
    with pytest.raises(gpushm.errors.StateError), f["x"].buffer:
        pass
    reader.close()
    reader.close()
    assert f.closed
    for use in (lambda: reader.next(), lambda: reader.slots, lambda: reader.buffer, reader.stats, reader.fileno):
        with pytest.raises(ValueError, match="closed"):
            use()
    with pytest.raises(ValueError, match="closed"), reader:
        pass
    assert reader.name == "s" and "closed" in repr(reader)


def test_a_closed_producer_cancels_its_frame(pool: str) -> None:
    with gpushm.stream("s", ARRAYS, pool=pool) as s:
        reader = gpushm.follow("s", "every")
        f = s.frame()
    assert f.closed
    with pytest.raises(ValueError):
        f.publish()
    assert list(reader) == []
    reader.close()


# ---- meta ----

METAS: list[Any] = [
    b"",
    b"raw \xff bytes" * 4,
    b"x" * 64,
    b"\xd9\xd9\xf7\xa0",  # begins as our own dicts do
    b"\xd9\xd9\xf7",
    {},
    {"pts": 1234.5, "id": 7},
    {"t": 1e300, "f": 0.5, "big": 2**64 - 1, "neg": -(2**63), "zero": 0},
    {"s": "é", "b": b"\0", "l": [1, [2, {}], None], "t": True, "f": False, "n": None},
    {"i": float("inf"), "j": 255, "k": 256, "l": 65536, "m": -257},
]


@pytest.mark.parametrize("meta", METAS)
def test_meta_arrives_as_it_was_set(meta: Any, host_pool: str) -> None:
    with gpushm.stream("s", {"x": (8, "u1")}, pool=host_pool) as s, gpushm.follow("s", "every") as reader:
        with s.frame() as f:
            assert f.meta == b""
            f.meta = meta
            assert f.meta == meta
        found = reader.next(timeout=5).meta
        assert found == meta and type(found) is type(meta)
        # The same beside a shape, where there is space.
        if len(str(meta)) < 40:
            with s.frame() as f:
                f.resize("x", (2, 3))
                f.meta = meta
            f = reader.next(timeout=5)
            assert f["x"].shape == (2, 3) and f.meta == (meta or b"")


def test_meta_refuses_what_it_cannot_keep(host_pool: str) -> None:
    loop: list[Any] = []
    loop.append(loop)
    with gpushm.stream("s", {"x": (8, "u1")}, pool=host_pool) as s, s.frame() as f:
        for wrong in (b"x" * 65, {"key": "x" * 60}, {"l": list(range(100))}):
            with pytest.raises(gpushm.errors.BadArgument, match="and a frame has 64"):
                f.meta = wrong
        for odd in (7, "text", {1: 2}, {"a": object()}, {"a": {2: 3}}, {"a": {1, 2}}, [1], {"a": np.zeros(3)}):
            with pytest.raises(TypeError):
                f.meta = odd
        with pytest.raises(OverflowError):
            f.meta = {"a": 2**64}
        with pytest.raises(RecursionError):
            f.meta = {"a": loop}
        assert f.meta == b""
        f.meta = {"i": np.int32(-5), "f": np.float32(0.5)}
        f.meta = np.arange(3, dtype="u1")
        f.meta = None
        assert f.meta == b""


def test_a_dict_that_grew_after_it_was_set_is_whole_or_refused(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every") as reader:
        with s.frame() as f:
            f.meta = {}
            f.meta["pts"] = 5
        assert reader.next(timeout=5).meta == {"pts": 5}
        with pytest.raises(gpushm.errors.BadArgument), s.frame() as f:
            f.meta = {}
            f.meta["pts"] = "x" * 100
        # That frame was dropped, and the next one is as good as any.
        fill(s, 1)
        assert value(reader.next(timeout=5)) == 1


@pytest.mark.parametrize(
    "raw",
    [
        b"\xd9\xd9\xf7\xa1",  # a pair is missing
        b"\xd9\xd9\xf7\xbf\xff",  # of indefinite length
        b"\xd9\xd9\xf7\xa1\x00\x07",  # no shape
        b"\xd9\xd9\xf7\xa1\x80\x07",  # a list as a key
        b"\xd9\xd9\xf7\xa1\x61\xff\x07",  # no UTF-8
        b"\xd9\xd9\xf7\xbb\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xd9\xd9\xf7" + b"\x81" * 61,
        b"\xd9\xd9\xf7\x07",
        b"\xd9\xd9\xf7\xa0\x00",
        b"\xd9\xd9\xf7\xa1\x61a\xfc",
    ],
)
def test_another_programs_bytes_are_told_as_they_are(raw: bytes, in_c: Callable[[bytes], gpushm.types.Frame]) -> None:
    assert in_c(raw).meta == raw


@pytest.mark.parametrize(
    "raw, found",
    [
        (b"\xd9\xd9\xf7\xa1\x61a\xf9\x3c\x00", {"a": 1.0}),  # a half
        (b"\xd9\xd9\xf7\xa1\x61a\xf9\x00\x01", {"a": 2.0**-24}),
        (b"\xd9\xd9\xf7\xa1\x61a\xf9\xfc\x00", {"a": float("-inf")}),
        (b"\xd9\xd9\xf7\xa1\x61a\x18\x07", {"a": 7}),  # not the shortest
        (b"\xd9\xd9\xf7\xa1\x61a\xa1\x05\x06", {"a": {5: 6}}),
    ],
)
def test_another_programs_cbor_is_decoded(raw: bytes, found: Any, in_c: Callable[[bytes], gpushm.types.Frame]) -> None:
    assert in_c(raw).meta == found


@pytest.mark.parametrize("shape", [b"\x81\x20", b"\x81\x09", b"\x82\x1b\x7f" + b"\xff" * 7 + b"\x04", b"\x81\x61a"])
def test_another_programs_shape_beyond_the_slot_is_refused(
    shape: bytes, in_c: Callable[[bytes], gpushm.types.Frame]
) -> None:
    frame = in_c(b"\xd9\xd9\xf7\xa1\x00" + shape)
    with pytest.raises((gpushm.errors.LayoutError, TypeError)):
        frame["x"]


class CDtype(ctypes.Structure):
    _fields_: ClassVar = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16), ("size", U32)]


class CArray(ctypes.Structure):
    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("name", ctypes.c_char_p),
        ("dtype", CDtype),
        ("ndim", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("offset", U64),
        ("strides", ctypes.c_void_p),
        ("descr", ctypes.c_char_p),
    ]


class CSpec(ctypes.Structure):
    _fields_: ClassVar = [
        ("size", ctypes.c_size_t),
        ("arrays", ctypes.POINTER(CArray)),
        ("n", ctypes.c_size_t),
        *((name, U32) for name in ("slots", "readers", "flags", "delivery")),
        ("limit_ms", U64),
    ]


class COptions(ctypes.Structure):
    _fields_: ClassVar = [("size", ctypes.c_size_t), ("pool", ctypes.c_char_p), ("rest", U64 * 8)]


@pytest.fixture
def in_c(host_pool: str) -> Iterator[Callable[[bytes], gpushm.types.Frame]]:
    """A frame whose meta a producer in C has written, byte for byte."""
    lib = ctypes.CDLL(str(next(Path(gpushm.__file__).parent.glob("libgpushm.so.*"))))
    lib.gpushm_frame_publish.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]
    lib.gpushm_frame_begin.argtypes = [ctypes.c_void_p, ctypes.c_void_p, U64, ctypes.c_void_p]
    lib.gpushm_stream_close.argtypes = lib.gpushm_disconnect.argtypes = [ctypes.c_void_p]
    c, s, f = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    assert lib.gpushm_connect(None, ctypes.byref(c)) == 0
    array = CArray(ctypes.sizeof(CArray), b"x", CDtype(1, 8, 1, 0), 1, (ctypes.c_int64 * 1)(8))
    spec = CSpec(ctypes.sizeof(CSpec), ctypes.pointer(array), 1)
    options = COptions(ctypes.sizeof(COptions), host_pool.encode())
    assert lib.gpushm_stream_create(c, b"s", ctypes.byref(spec), ctypes.byref(options), ctypes.byref(s)) == 0
    with gpushm.follow("s", "every") as reader:

        def publish(raw: bytes) -> gpushm.types.Frame:
            assert lib.gpushm_frame_begin(s, ctypes.c_void_p(-1), 0, ctypes.byref(f)) == 0
            assert lib.gpushm_frame_publish(f, ctypes.c_void_p(-1), raw, len(raw)) == 0
            return reader.next(timeout=5)

        yield publish
    lib.gpushm_stream_close(s)
    lib.gpushm_disconnect(c)


# ---- shapes ----


def test_a_frame_can_have_a_smaller_shape_than_its_slot(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every") as reader:
        with s.frame() as f:
            small = f.resize("x", (3, 5))
            small[...] = np.arange(15, dtype="float32").reshape(3, 5)
            f["n"][...] = 9
            assert f["x"].shape == (3, 5)
            f.resize("x", ())
            f.resize("x", (0, 9))
            f.resize("x", (3, 5))
            f.meta = {"pts": 1}
        f = reader.next(timeout=5)
        assert f["x"].shape == (3, 5) and f["x"].is_c_contiguous() and f["n"].shape == ()
        assert f["x"].copy_to_host().tolist() == np.arange(15.0).reshape(3, 5).tolist()
        assert f.meta == {"pts": 1} and f["n"].copy_to_host() == 9
        fill(s, 2)
        assert reader.next(timeout=5)["x"].shape == (4, 6)


def test_a_shape_larger_than_the_slot_is_refused(s: gpushm.types.Stream) -> None:
    with s.frame() as f:
        for shape in ((5, 6), 25, (2**62, 8), (-1,), (-1, -1)):
            with pytest.raises(gpushm.errors.LayoutError):
                f.resize("x", shape)
        with pytest.raises(KeyError):
            f.resize("y", 1)
        assert f["x"].shape == (4, 6)
        f.resize("x", 24)
        f.meta = b"x" * 50
        with pytest.raises(gpushm.errors.BadArgument, match="shapes of its arrays"):
            f.meta = b"x" * 60
        with pytest.raises(gpushm.errors.BadArgument, match="shapes of its arrays"):
            f.resize("x", (1,) * 20)
        assert f["x"].shape == (24,)


# ---- processes ----


def in_other(code: str, **env: str) -> subprocess.Popen[str]:
    """A process that runs this, and speaks by lines."""
    script = "import gpushm, os, sys, time\nimport numpy as np\n" + code
    return subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=os.environ | env
    )


def line(p: subprocess.Popen[str]) -> str:
    assert p.stdout is not None
    return p.stdout.readline().strip()


def end(p: subprocess.Popen[str], *, kill: bool = False) -> None:
    if kill:
        p.kill()
    p.communicate()
    assert p.returncode == (-signal.SIGKILL if kill else 0)


PRODUCER = """
s = gpushm.stream("s", {"x": (1000, "int64")}, slots=4, pool="host", wait=10)
print("made", flush=True)
"""


def test_a_frame_of_another_process_arrives_whole(host_pool: str) -> None:
    other = in_other(
        PRODUCER
        + """
sys.stdin.readline()
for i in range(500):
    with s.frame(timeout=30) as f:
        f["x"].fill(i)
        f.meta = {"i": i}
s.close()
"""
    )
    assert line(other) == "made"
    with gpushm.follow("s", "every", timeout=30) as every, gpushm.follow("s", "latest", timeout=30) as latest:
        assert other.stdin is not None
        other.stdin.write("go\n")
        other.stdin.flush()
        seen = []
        for f in every:
            x = f["x"].numpy()
            assert (x == f.meta["i"]).all() and f.ok()
            seen.append(f.meta["i"])
            del x
        assert seen == list(range(500))
        assert next(latest).seq == 500
    end(other)


def test_a_producers_death_is_an_error_and_an_heir_goes_on(host_pool: str) -> None:
    other = in_other(PRODUCER + "s.frame().publish(); f = s.frame(); print('filling', flush=True); time.sleep(60)")
    assert line(other) == "made"
    with gpushm.follow("s", "latest", timeout=30) as reader:
        assert line(other) == "filling"
        assert next(reader).seq == 1
        end(other, kill=True)
        with pytest.raises(gpushm.errors.ProducerDied):
            next(reader)
        assert reader.stats().state == "orphaned"
        # The next call waits for another producer.
        with pytest.raises(gpushm.errors.Timeout):
            reader.next(timeout=0.01)
        heir = gpushm.stream("s", {"x": (1000, "int64")}, slots=4, pool=host_pool, adopt=True, wait=10)
        with heir.frame() as f:
            f["x"].fill(5)
        f = next(reader)
        assert f.seq == 2 and f["x"][0] == 5
        heir.close()
        with pytest.raises(StopIteration):
            next(reader)


def test_a_patient_reader_gets_the_next_producers_frames(host_pool: str) -> None:
    other = in_other(PRODUCER + "s.frame().publish(); print('done', flush=True); time.sleep(60)")
    assert line(other) == "made"
    with gpushm.follow("s", "every", timeout=30, wait_for_producer=True) as reader:
        assert line(other) == "done"
        end(other, kill=True)
        with gpushm.stream("s", {"x": (1000, "int64")}, slots=4, pool=host_pool, adopt=True, wait=None) as heir:
            heir.frame().publish()
            seqs = [next(reader).seq]
            if seqs == [1]:
                seqs.append(next(reader).seq)
        assert seqs[-1] == 2 and list(reader) == []


def test_a_living_producer_keeps_its_stream(s: gpushm.types.Stream, pool: str) -> None:
    with pytest.raises(gpushm.errors.StateError):
        gpushm.stream("s", ARRAYS, slots=4, pool=pool, adopt=True)
    with pytest.raises((gpushm.errors.StateError, gpushm.errors.Timeout)):
        gpushm.stream("s", ARRAYS, slots=4, pool=pool, adopt=True, wait=0.01)
    with pytest.raises(gpushm.errors.Exists):
        gpushm.stream("s", ARRAYS, slots=4, pool=pool)
    with pytest.raises(gpushm.errors.Exists):
        gpushm.stream("s", {"x": ((4, 7), "float32")}, slots=4, pool=pool, adopt=True)


def test_a_dead_readers_share_goes_to_another_reader(host_pool: str) -> None:
    code = """
r = gpushm.follow("s", "share", timeout=30)
print("joined", flush=True)
f = next(r)
print(f.seq, flush=True)
"""
    with gpushm.stream("s", ARRAYS, slots=4, pool=host_pool) as s:
        other = in_other(code + "time.sleep(60)")
        assert line(other) == "joined"
        with s.frame() as f:
            f.meta = {"job": 1}
        assert line(other) == "1"
        with gpushm.follow("s", "share", timeout=30) as reader:
            end(other, kill=True)
            assert next(reader).meta == {"job": 1}
        info = gpushm.streams("s")[0]
        assert info.redone == 1 and info.lost == 0


def test_a_failed_workers_share_goes_to_another_reader(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, slots=4, pool=host_pool) as s, gpushm.follow("s", "share") as other:
        with pytest.raises(ZeroDivisionError), gpushm.follow("s", "share") as reader:
            fill(s, 1)
            for _ in reader:
                raise ZeroDivisionError
        assert value(other.next(timeout=10)) == 1


def test_a_program_that_just_ends_ends_its_stream(host_pool: str) -> None:
    for ending in ("", "sys.exit(0)"):
        other = in_other(PRODUCER + "f = s.frame()\nsys.stdin.readline()\n" + ending)
        assert line(other) == "made"
        with gpushm.follow("s", "every", timeout=30) as reader:
            end(other)
            assert list(reader) == []


def test_a_forked_child_leaves_its_parents_stream_alone(host_pool: str) -> None:
    code = """
import gc
s = gpushm.stream("s", {"x": (8, "u1")}, pool="host")
r = gpushm.follow("s", "every")
s.frame().publish()
f = r.next()
g = s.frame()
child = os.fork()
if child == 0:
    for use in (s.frame, r.next, f.ok, g.publish, s.stats, s.fileno):
        try:
            use()
            os._exit(1)
        except (gpushm.errors.ForkError, ValueError, gpushm.errors.StateError):
            pass
    f = g = r = s = None
    gc.collect()
    sys.exit(0)
assert os.waitpid(child, 0)[1] == 0
g.publish()
f.release()
assert r.next().seq == 2
print("fine")
"""
    other = in_other(code)
    assert line(other) == "fine"
    end(other)


# ---- slow readers ----


def test_a_slow_reader_is_dropped(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, slots=2, pool=host_pool, limit=0.05) as s:
        with gpushm.follow("s", "every") as reader:
            fill(s, 1, 2)
            f = reader.next(timeout=5).keep()
            with pytest.raises(gpushm.errors.Timeout, match=f"process {os.getpid()}"):
                s.frame(timeout=0)
            with s.frame(timeout=10):
                pass
            assert not f.ok()
            with pytest.raises(gpushm.errors.ReaderDropped, match="overwritten"):
                f.release()
            with pytest.raises(gpushm.errors.ReaderDropped, match="dropped"):
                reader.next(timeout=1)
            with pytest.raises(gpushm.errors.ReaderDropped):
                next(reader)
            info = gpushm.streams("s")[0]
            assert info.dropped == 1 and info.stalls >= 1 and s.stats().stalls >= 1
        fill(s, 3)


def test_a_with_block_says_that_its_frame_was_overwritten(host_pool: str) -> None:
    with (
        gpushm.stream("s", ARRAYS, slots=2, pool=host_pool, limit=0.05) as s,
        gpushm.follow("s", "every") as reader,
    ):
        fill(s, 1, 2)
        with pytest.raises(gpushm.errors.ReaderDropped), reader.next(timeout=5):
            s.frame(timeout=10).publish()


def test_a_stream_has_no_more_readers_than_places(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, readers=2, pool=host_pool):
        readers = [gpushm.follow("s") for _ in range(2)]
        with pytest.raises(gpushm.errors.LimitReached):
            gpushm.follow("s")
        readers.pop().close()
        readers.append(gpushm.follow("s"))
        for r in readers:
            r.close()


# ---- arguments ----


def test_a_wrong_argument_is_refused(s: gpushm.types.Stream, pool: str) -> None:
    make: Any = gpushm.stream
    follow: Any = gpushm.follow
    for words in (
        {"slots": 0},
        {"slots": 1},
        {"slots": 5000},
        {"readers": 65},
        {"readers": 0},
        {"limit": 0},
        {"limit": -1},
        {"delivery": "sometimes"},
        {"spin": -1},
        {"spin": 1.1},
        {"spin": float("nan")},
    ):
        with pytest.raises(ValueError):
            make("t", ARRAYS, pool=pool, **words)
    with pytest.raises(ValueError, match="array"):
        make("t", {}, pool=pool)
    with pytest.raises(TypeError):
        make("t", {"x": 3.5j + 1, 4: 5}, pool=pool)
    for words in ({"how": "some"}, {"max_held": 0}, {"max_held": 4}, {"timeout": -1}, {"spin": 2}):
        with pytest.raises(ValueError):
            follow("s", **words)
    with pytest.raises(TypeError, match="stream is"):
        follow("s", stream="x")
    with pytest.raises(TypeError):
        follow("s", spin=None)
    with pytest.raises(gpushm.errors.NotFound):
        follow("t", timeout=0)
    with pytest.raises(gpushm.errors.Timeout):
        follow("t", timeout=0.05)
    with gpushm.create("u", 4, pool=pool) as a:
        a.publish()
        with pytest.raises(gpushm.errors.NotSupported):
            follow("u", timeout=0)
    gpushm.unlink("u")
    assert gpushm.streams("t") == [] and len(gpushm.streams()) == 1


@pytest.mark.skipif("mempool" not in KINDS.values(), reason="no mempool")
def test_a_stream_in_a_mempool_is_refused() -> None:
    pool = next(name for name in POOLS if KINDS[name] == "mempool")
    with pytest.raises(gpushm.errors.NotSupported, match="mempool"):
        gpushm.stream("s", ARRAYS, pool=pool)


def test_streams_and_their_frames_refuse_to_pickle(s: gpushm.types.Stream) -> None:
    fill(s, 1)
    with gpushm.follow("s") as reader:
        f = reader.next(timeout=5)
        for thing in (f, f["x"], reader, s, f["x"].buffer):
            with pytest.raises(TypeError, match=r"pickle|follow"):
                pickle.dumps(thing)


def test_the_list_tells_of_a_stream_and_its_readers(s: gpushm.types.Stream, pool: str) -> None:
    with gpushm.follow("s", "every", max_held=2) as reader:
        fill(s, 1, 2)
        f = reader.next(timeout=5)
        info = gpushm.streams()[0]
        assert (info.name, info.pool, info.state, info.slots, info.newest) == ("s", pool, "running", 4, 2)
        assert info.pid == os.getpid() and info.limit == 10 and info.delivery == "at-least-once"
        there = info.readers[0]
        assert (there.follow, there.max_held, there.pid, there.lag, there.held) == ("every", 2, os.getpid(), 1, 1)
        assert there.oldest == f.seq == 1 and info.newest_time <= info.now
        assert "every" in str(gpushm.streams()) and "<table>" in gpushm.streams()._repr_html_()
        assert s.buffer["x"].shape == (4, 4, 6) and reader.buffer["x"].readonly
        stats = reader.stats()
        assert (stats.taken, stats.lag, stats.held, stats.newest) == (1, 1, 1, 2)
        f.release()


# ---- threads, Ctrl-C, asyncio ----


def test_one_thread_at_a_time_uses_a_reader(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every") as reader:
        found: list[Any] = []

        def wait() -> None:
            while not found:
                with suppress(gpushm.errors.InUse):
                    found.append(reader.next(timeout=30).seq)

        thread = threading.Thread(target=wait)
        thread.start()
        with pytest.raises(gpushm.errors.InUse):
            while True:
                with pytest.raises(gpushm.errors.Timeout):
                    reader.next(timeout=0)
        with pytest.raises(gpushm.errors.InUse, match="can't be closed"):
            reader.close()
        fill(s, 1)
        thread.join()
        assert found == [1]


def test_another_thread_releases_a_frame(s: gpushm.types.Stream) -> None:
    with gpushm.follow("s", "every", max_held=3) as reader:
        jobs: list[threading.Thread] = []
        done: list[int] = []

        def work(f: gpushm.types.Frame) -> None:
            with f:
                done.append(value(f))

        for i in range(1, 30):
            fill(s, i)
            for job in jobs[:-2]:
                job.join()
            jobs.append(threading.Thread(target=work, args=(reader.next(timeout=10).keep(),)))
            jobs[-1].start()
        for job in jobs:
            job.join()
        assert sorted(done) == list(range(1, 30)) and reader.stats().held == 0


def test_a_spin_lets_other_threads_run(host_pool: str) -> None:
    with (
        gpushm.stream("s", ARRAYS, slots=2, pool=host_pool, spin=1) as s,
        gpushm.follow("s", "every", spin=1) as reader,
    ):
        for i in range(3):
            thread = threading.Timer(0.03, fill, (s, i))
            thread.start()
            f = reader.next(timeout=10)
            assert value(f) == i
            f.release()
            thread.join()
        fill(s, 3, 4)
        f = reader.next(timeout=10).keep()
        thread = threading.Timer(0.03, f.release)
        thread.start()
        fill(s, 5)
        thread.join()
        s.close()
        assert [value(f) for f in reader] == [4, 5]


def test_a_paced_reader_gets_every_frame(host_pool: str) -> None:
    with gpushm.stream("s", ARRAYS, slots=64, pool=host_pool) as s, gpushm.follow("s", "every", spin=1e-3) as reader:

        def produce() -> None:
            for i in range(50):
                time.sleep(4e-3)
                fill(s, i)

        thread = threading.Thread(target=produce)
        thread.start()
        for i in range(50):
            assert value(reader.next(timeout=10)) == i
        thread.join()
        with pytest.raises(gpushm.errors.Timeout):
            reader.next(timeout=0.01)


@pytest.mark.parametrize("spin", [0, 1])
def test_ctrl_c_ends_a_wait(s: gpushm.types.Stream, spin: float) -> None:
    # A shell's background job begins with the signal ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    with gpushm.follow("s", "every", spin=spin) as reader:
        for wait in (reader.next, lambda: next(reader), lambda: gpushm.follow("never")):
            timer = threading.Timer(0.05, signal.raise_signal, (signal.SIGINT,))
            timer.start()
            with pytest.raises(KeyboardInterrupt):
                wait()
            timer.join()
        signal.signal(signal.SIGINT, before)
        fill(s, 1)
        assert value(reader.next(timeout=5)) == 1


def test_an_event_loop_runs_while_frames_are_waited_for(pool: str) -> None:
    async def produce() -> None:
        with gpushm.stream("s", ARRAYS, slots=2, pool=pool) as s:
            while not s.stats().readers:
                await asyncio.sleep(0.001)
            for i in range(20):
                with await s.frame_async(timeout=30) as f:
                    f.meta = {"i": i}

    async def read() -> list[int]:
        found = []
        async with gpushm.follow("s", "every", timeout=30) as reader:
            async for f in reader:
                found.append(f.meta["i"])
                await asyncio.sleep(0.001 * (f.seq % 2))
            with pytest.raises(gpushm.errors.StreamEnded):
                await reader.next_async()
        return found

    async def both() -> list[int]:
        reading = asyncio.create_task(read())  # before there is a stream
        await asyncio.sleep(0)
        await produce()
        return await reading

    assert asyncio.run(both()) == list(range(20))


def test_a_tasks_wait_can_time_out_or_be_cancelled(s: gpushm.types.Stream) -> None:
    async def main() -> None:
        async with gpushm.follow("s", "every") as reader:
            with pytest.raises(gpushm.errors.Timeout):
                await reader.next_async(0.01)
            task = asyncio.create_task(reader.next_async())
            await asyncio.sleep(0.01)
            with pytest.raises(gpushm.errors.InUse):
                reader.close()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            fill(s, 1, 2, 3, 4)
            with pytest.raises(gpushm.errors.Timeout):
                await s.frame_async(timeout=0.01)
            assert (await reader.next_async(5)).seq == 1
        with pytest.raises(gpushm.errors.Timeout):
            await gpushm.follow("never", timeout=0.05).next_async()
        # The connection of that wait ended with it: makes what a process makes once.
        with pytest.raises(gpushm.errors.Timeout):
            await gpushm.wait_async("never", 0)

    asyncio.run(main())


# ---- the daemon ----


def test_frames_flow_after_the_daemon_is_killed(other_daemon: Daemon) -> None:
    with gpushm.connect(other_daemon.socket) as c:
        s = c.stream("s", ARRAYS, pool="host")
        reader = c.follow("s", "every")
        fill(s, 1)
        other_daemon.kill()
        fill(s, 2)
        assert [value(reader.next(timeout=5)) for _ in range(2)] == [1, 2]
        reader.close()
        s.close()


# ---- GPUs, over the driver that is here ----


@pytest.fixture
def on_gpu() -> str:
    found = [name for name in STREAM_POOLS if KINDS[name] == "vmm"]
    if not found:
        pytest.skip("no GPU")
    return found[0]


class TheirStream:
    """A stream of some library's, over a CUstream."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


@pytest.fixture
def two_streams(on_gpu: str) -> Iterator[tuple[TheirStream, TheirStream]]:
    cuda = ctypes.CDLL("libcuda.so.1")
    context, handles = ctypes.c_void_p(), (ctypes.c_void_p(), ctypes.c_void_p())
    assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0) == 0
    assert cuda.cuCtxPushCurrent_v2(context) == 0
    for h in handles:
        assert cuda.cuStreamCreate(ctypes.byref(h), 1) == 0
    yield TheirStream(handles[0].value or 0), TheirStream(handles[1].value or 0)
    for h in handles:
        assert cuda.cuStreamDestroy_v2(h) == 0
    cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
    cuda.cuDevicePrimaryCtxRelease_v2(0)


def test_frames_are_ordered_on_streams_and_the_host(on_gpu: str, two_streams: tuple[TheirStream, TheirStream]) -> None:
    mine, theirs = two_streams
    data = np.arange(24, dtype="float32").reshape(4, 6)
    with (
        gpushm.stream("s", ARRAYS, slots=4, pool=on_gpu) as s,
        gpushm.follow("s", "every", stream=theirs, max_held=2) as reader,
    ):
        for i in range(20):
            with s.frame(stream=mine, timeout=30) as f:
                f["x"].copy_from_host(data + i, stream=mine)
            f = reader.next(timeout=30)
            out = f["x"].copy_to_host(stream=theirs)
            f.release(theirs)
            # On the host all of it is waited for.
            with s.frame() as g:
                g["x"].copy_from_host(data - i)
            h = reader.next(timeout=30, stream=None)
            assert (h["x"].copy_to_host() == data - i).all() and h.ok()
            h.release(stream=None)
            assert (out == data + i).all()


def test_a_consumer_on_another_stream_waits_for_the_frame(
    on_gpu: str, two_streams: tuple[TheirStream, TheirStream], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, theirs = two_streams
    waited: list[int] = []
    from gpushm import _driver

    synchronize = _driver.synchronize
    monkeypatch.setattr(_driver, "synchronize", lambda s, *a: (waited.append(s), synchronize(s, *a)))
    with gpushm.stream("s", ARRAYS, slots=4, pool=on_gpu) as s, gpushm.follow("s", "every", stream=theirs) as reader:
        with s.frame(stream=mine) as f:
            f["x"].__dlpack__(stream=mine.handle)
            assert waited == []
            f["x"].copy_from_host(np.zeros((4, 6), "float32"), stream=theirs)
        # The frame is published behind the copy, which was queued on another stream.
        assert waited == [theirs.handle]
        f = reader.next(timeout=30)
        f["x"].__dlpack__(stream=theirs.handle, max_version=(1, 0))
        assert waited == [theirs.handle]
        f["x"].__dlpack__(stream=mine.handle, max_version=(1, 0))
        assert waited == [theirs.handle, theirs.handle]
        assert f["x"].__cuda_array_interface__["stream"] in (theirs.handle, None)


def test_a_cuda_stream_is_refused_for_memory_of_the_host(
    host_pool: str, two_streams: tuple[TheirStream, TheirStream]
) -> None:
    with gpushm.stream("s", ARRAYS, pool=host_pool) as s, gpushm.follow("s", stream=two_streams[0]) as reader:
        with pytest.raises(gpushm.errors.NotSupported, match="host pool"):
            s.frame(stream=two_streams[0])
        with pytest.raises(gpushm.errors.NotSupported, match="host pool"):
            reader.next(timeout=1)
