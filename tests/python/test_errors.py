# SPDX-License-Identifier: MIT
"""Each error raises its own exception with a clear text, and leaves nothing behind."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest
import safetensors.numpy

BUILTINS = {
    "NotFound": FileNotFoundError, "Exists": FileExistsError, "AccessDenied": PermissionError, "Timeout": TimeoutError,
    "NotPublished": BlockingIOError, "ReadOnly": ValueError, "PoolFull": MemoryError, "TooLarge": MemoryError,
    "DaemonGone": ConnectionError, "ForkError": RuntimeError, "InUse": BufferError, "BadArgument": ValueError,
    "LayoutError": ValueError, "NotSupported": NotImplementedError, "OutOfMemory": MemoryError, "StreamEnded": EOFError,
}


def test_an_exception_is_also_the_one_that_python_has_for_it() -> None:
    errors = [e for e in vars(gpushm.errors).values() if isinstance(e, type) and issubclass(e, gpushm.Error)]
    assert len(errors) == 25 and all(issubclass(e, OSError) for e in errors)
    for name, builtin in BUILTINS.items():
        assert issubclass(getattr(gpushm.errors, name), builtin)


def test_an_exception_keeps_its_code_in_a_pickle() -> None:
    with pytest.raises(gpushm.errors.NotFound) as caught:
        gpushm.open("none")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is gpushm.errors.NotFound
    assert (str(again), again.code, again.errno) == (str(caught.value), "NOT_FOUND", 2)


@pytest.mark.parametrize(
    ("call", "error", "code", "text"),
    [
        (lambda: gpushm.open("none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.open("none", timeout=0.05), "Timeout", "TIMED_OUT", "none"),
        (lambda: gpushm.open("none", timeout=1e-9), "Timeout", "TIMED_OUT", "none"),
        (lambda: gpushm.wait("none", timeout=1e-9), "Timeout", "TIMED_OUT", "none"),
        (lambda: gpushm.wait("none", 0.05), "Timeout", "TIMED_OUT", "none"),
        (lambda: gpushm.wait("none", 0), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.open("/none"), "BadArgument", "NAME", "/none"),
        (lambda: gpushm.open("n" * 256), "BadArgument", "", "255"),
        (lambda: gpushm.create("a", 4, pool="none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.create("a//b", 4), "BadArgument", "NAME", "a//b"),
        (lambda: gpushm.create("a", 4, mode=0o7777), "BadArgument", "BAD_REQUEST", "mode"),
        (lambda: gpushm.create("a", -4), "BadArgument", "", "negative"),
        (lambda: gpushm.create("a", 2**62, "float64"), "LayoutError", "", "overflow"),
        (lambda: gpushm.create("a", 2**60, pool="host"), "TooLarge", "TOO_LARGE", "host"),
        (lambda: gpushm.create_many("a", {"x": (4, "u1"), "/x": (4, "u1")}), "BadArgument", "", "empty component"),
        (lambda: gpushm.create("a", 4, attrs={"k": b"x" * 5000}), "Error", None, ""),
        (lambda: gpushm.unlink("none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.clean("none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.stat("none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.flush("none"), "NotFound", "NOT_FOUND", "none"),
        (lambda: gpushm.connect("/none/such/socket"), "DaemonGone", "", "socket"),
    ],
)
def test_each_error_has_its_exception_code_and_text(call: Any, error: str, code: str | None, text: str) -> None:
    with pytest.raises(getattr(gpushm.errors, error)) as caught:
        call()
    e = caught.value
    assert text in str(e) and e.errno and e.strerror
    if code is not None:
        assert e.code == code


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpushm.open(7), lambda: gpushm.open("a", 7), lambda: gpushm.open("a", timeout="soon"),
        lambda: gpushm.create("a"), lambda: gpushm.create("a", "x"), lambda: gpushm.create("a", 1.5),
        lambda: gpushm.create("a", 4, attrs=7), lambda: gpushm.create("a", 4, attrs={1: b""}),
        lambda: gpushm.create("a", 4, attrs={"k": object()}), lambda: gpushm.create("a", 4, nonsense=1),
        lambda: gpushm.create("a", 4, strides="x"), lambda: gpushm.create("a", 4, gid="wheel"),
        lambda: gpushm.create_many("a", {"x": object()}), lambda: gpushm.create_many("a", {7: (1, "u1")}),
        lambda: gpushm.connect(7), lambda: gpushm.stat(None), lambda: gpushm.ls(7),
        lambda: gpushm.numba.to_device([1], "s"),
    ],
)
def test_an_argument_of_another_type_is_refused(call: Any) -> None:
    with pytest.raises((TypeError, AttributeError)):
        call()


@pytest.mark.parametrize(
    "call",
    [
        lambda: gpushm.open("a", timeout=-1), lambda: gpushm.open("a", timeout=float("nan")),
        lambda: gpushm.open("a\0b"), lambda: gpushm.create("a", 4, order="A"), lambda: gpushm.create("a", 4, gid=-1),
        lambda: gpushm.create("a", 4, attrs={str(i): b"" for i in range(65)}), lambda: gpushm.create("a", (1,) * 33),
        lambda: gpushm.create("a", 4, device=-1), lambda: gpushm.create("a", 4, mode=0),
        lambda: gpushm.create("a", 4, "uint8\0x"),
        lambda: gpushm.create("a", 4, order="C\0x"), lambda: gpushm.create("a", 4, pool="host\0x"),
        lambda: gpushm.create("a", 4, attrs={"k\0x": b""}), lambda: gpushm.create_many("a", {"x\0": (1, "u1")}),
        lambda: gpushm.open("a", "r\0x"), lambda: gpushm.open("a", array="x\0"), lambda: gpushm.stat("a\0b"),
        lambda: gpushm.ls("a\0b"), lambda: gpushm.unlink("a\0b"), lambda: gpushm.clean("a\0b"),
        lambda: gpushm.wait("a\0b"), lambda: gpushm.flush("host\0x"), lambda: gpushm.connect("/tmp\0x"),
    ],
)
def test_an_argument_without_sense_is_refused(call: Any) -> None:
    with pytest.raises(ValueError):
        call()


def test_a_word_with_a_nul_is_unknown_or_refused(host_pool: str) -> None:
    with gpushm.create_many("m", {"w": ((2, 2), "u1")}, pool=host_pool, attrs={"k": b"v"}) as b:
        assert "w\0x" not in b and "w\0" not in b and b.get("w\0x", 3) == 3
        with pytest.raises(KeyError):
            b["w\0x"]
        for call in (
            lambda: b.attr("k\0x"), lambda: b["w"].reshape(4, order="C\0x"), lambda: b["w"].ravel("C\0x"),
            lambda: b["w"].view("int8\0x"), lambda: b.array(4, "uint8\0x"), lambda: b.publish("sealed\0x"),
        ):
            with pytest.raises(ValueError, match="null"):
                call()


@pytest.mark.parametrize(
    "call",
    [
        lambda a: gpushm.create("b", 4, mode=2**32 + 0o600), lambda a: gpushm.create("b", 4, mode=-0o600),
        lambda a: gpushm.create_many("b", {"x": (4, "u1")}, mode=2**32 + 0o600),
        lambda a: a.buffer.array(1, "uint8", offset=2**64 + 1), lambda a: a.buffer.array(1, "uint8", offset=-(2**64)),
        lambda a: gpushm.numba.set_cleanup_limits(-1, 0.2), lambda a: gpushm.numba.set_cleanup_limits(2**32, 0.2),
    ],
)
def test_a_number_out_of_range_is_refused(host_pool: str, call: Any) -> None:
    with gpushm.create("a", 4, pool=host_pool) as a, pytest.raises(OverflowError):
        call(a)


def test_numpys_integers_are_taken_as_numbers(host_pool: str) -> None:
    with gpushm.create("a", np.int64(8), pool=host_pool, mode=np.int16(0o640), gid=np.uint32(os.getgid())) as a:
        a[:] = range(8)
        with a.buffer.array(np.int8(2), "uint8", strides=np.intp(3), offset=np.int64(1)) as two:
            assert list(two) == [1, 4]
        a.publish()
        assert gpushm.stat("a").mode == 0o640
        with gpushm.open("a", shape=2, offset=np.uint64(3)) as two:
            assert list(two) == [3, 4]
        gpushm.unlink("a")


def test_a_taken_name_is_refused(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool), pytest.raises(gpushm.errors.Exists, match='"a"'):
        gpushm.create("a", 4, pool=pool)


def test_a_full_pool_is_an_error_with_and_without_a_wait(host_pool: str) -> None:
    room = next(p for p in gpushm.pools() if p.name == host_pool)
    with gpushm.create("big", room.max_buffer - 8192, pool=host_pool):
        with pytest.raises(MemoryError, match="host") as caught:
            gpushm.create("a", 2**20, pool=host_pool)
        assert isinstance(caught.value, gpushm.errors.PoolFull) and caught.value.code == "POOL_FULL"
        with pytest.raises(gpushm.errors.PoolFull):
            gpushm.create("a", 2**20, pool=host_pool, wait=0.15)


def test_an_object_cant_be_made_without_a_buffer() -> None:
    for made in (gpushm.Array, gpushm.Buffer):
        with pytest.raises(TypeError, match="cannot create"):
            made()


def test_a_closed_connection_is_refused_and_its_arrays_stay(host_pool: str) -> None:
    with gpushm.connect() as c:
        a = c.create("a", 4, pool=host_pool)
        assert a.buffer.connection is c and not c.closed and c.fileno() >= 0
        a.publish()
    assert c.closed
    for use in (lambda: c.ls(), lambda: c.open("a"), c.fileno):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert list(a.copy_to_host()) == [0] * 4
    a.close()
    gpushm.unlink("a")


def test_a_copy_to_an_unsuitable_destination_is_refused(pool: str) -> None:
    with gpushm.create("a", (2, 3), "int32", pool=pool) as a:
        for wrong in (np.zeros((3, 2), "i4"), np.zeros(6, "i4"), np.zeros((2, 3), "i8")):
            with pytest.raises((ValueError, TypeError)):
                a.copy_to_host(wrong)
        with pytest.raises(ValueError, match="6 elements of 4 bytes"):
            a.copy_to_host(bytearray(23))
        with pytest.raises(BufferError):
            a.copy_to_host(b"x" * 24)
        read_only = np.zeros((2, 3), "i4")
        read_only.flags.writeable = False
        with pytest.raises((BufferError, ValueError)):
            a.copy_to_host(read_only)


def test_a_name_that_is_taken_says_which_calls_replace(host_pool: str, tmp_path: Path) -> None:
    """A notebook's cell that is run again."""
    safetensors.numpy.save_file({"x": np.arange(4)}, tmp_path / "m.safetensors")
    with gpushm.create("a", 4, pool=host_pool) as a, gpushm.create("b", 4, pool=host_pool) as b:
        a.publish()
        for call in (lambda: gpushm.create("a", 4), lambda: b.publish_as("a"),
                     lambda: gpushm.load(tmp_path / "m.safetensors", "a", pool=host_pool)):
            text = r'name "a" is taken: .*replace=True of publish_as\(\), .*load\(\)'
            with pytest.raises(gpushm.errors.Exists, match=text):
                call()
        b.publish_as("a", replace=True)
    gpushm.unlink("a")
