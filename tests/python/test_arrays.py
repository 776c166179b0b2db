# SPDX-License-Identifier: MIT
"""Arrays and views, each compared with NumPy's."""

from __future__ import annotations

from typing import Any

import gpushm
import ml_dtypes
import numpy as np
import pytest
from copies import to_device

PLAIN = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
PLAIN += ["float16", "float32", "float64", "complex64", "complex128"]
MACHINE = ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e4m3b11fnuz"]
RECORDS = [
    np.dtype([("id", "i8"), ("box", "f4", (2, 2)), ("on", "?")], align=True),
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    np.dtype([("in", [("x", "f4"), ("y", "f4")]), ("name", "S7")]),
    np.dtype([("x", "i1"), ("y", "f4")]),
]
OPAQUE = ["S5", "U3", "M8[ns]", "m8[s]", "V12"]
DTYPES = [np.dtype(n) for n in PLAIN] + [np.dtype(getattr(ml_dtypes, n)) for n in MACHINE] + RECORDS
DTYPES += [np.dtype(n) for n in OPAQUE]


def content(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    """Elements that differ, the same in each run."""
    size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    raw = ((np.arange(size, dtype=np.int64) * 37 + 11) % 120).astype(np.uint8)
    if dtype.kind == "b":
        raw %= 2
    if dtype.kind == "U":
        raw = np.arange(size // 4, dtype=np.uint32) % 90 + 33
        raw = raw.view(np.uint8)
    return np.ndarray(shape, dtype, buffer=raw.tobytes()).copy() if size else np.empty(shape, dtype)


def same(a: Any, b: Any) -> bool:
    """Equal shapes, dtypes and bytes; of records only the fields, because NumPy copies no padding."""
    a, b = np.asarray(a), np.asarray(b)
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    return bool((a == b).all()) if a.dtype.names else a.tobytes() == b.tobytes()


LAYOUTS = {
    "whole": lambda a: a,
    "sliced": lambda a: a[1:5, 2:],
    "stepped": lambda a: a[::2, ::3],
    "reversed": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.T,
    "row": lambda a: a[3],
    "column": lambda a: a[:, 4],
    "one": lambda a: a[2:3, 1:2],
    "none": lambda a: a[3:3],
    "new axes": lambda a: a[None, :, None, 1:3],
    "mixed": lambda a: a[-1:0:-2, ..., 1],
}


def name_of(dtype: np.dtype) -> str:
    """For a test's name."""
    return f"record{dtype.itemsize}" if dtype.names else str(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=name_of)
def test_a_view_equals_numpys(pool: str, dtype: np.dtype) -> None:
    want = content((7, 6), dtype)
    with gpushm.create("a", want.shape, dtype, pool=pool) as a:
        assert a.dtype == dtype
        a.copy_from_host(want)
        for view in LAYOUTS.values():
            check_view(view(a), view(want), dtype)


def check_view(v: gpushm.Array, w: np.ndarray, dtype: np.dtype) -> None:
    """Checks that a view equals NumPy's in all its attributes."""
    assert (v.shape, v.size, v.ndim, v.itemsize) == (w.shape, w.size, w.ndim, w.itemsize)
    assert (v.is_c_contiguous(), v.is_f_contiguous()) == (w.flags.c_contiguous, w.flags.f_contiguous)
    assert same(v.copy_to_host(), w)
    out = np.zeros(w.shape[::-1], dtype).T[...]
    assert v.copy_to_host(out) is out
    assert same(out, w)
    if v.kind in ("host", "pinned"):
        assert same(v.numpy(), w)


@pytest.mark.parametrize("dtype", [*DTYPES[:15:3], RECORDS[0]], ids=name_of)
def test_a_write_through_a_view_hits_its_elements_alone(pool: str, dtype: np.dtype) -> None:
    with gpushm.create("a", (7, 6), dtype, pool=pool) as a:
        for view in LAYOUTS.values():
            want = content((7, 6), dtype)
            fresh = want[::-1, ::-1].copy()
            a.copy_from_host(want)
            view(a).copy_from_host(view(fresh))
            view(want)[...] = view(fresh)
            assert same(a.copy_to_host(), want)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 5), (1,) * 32, (2,) + (1,) * 30 + (3,), (5,)], ids=str)
@pytest.mark.parametrize("order", "CF")
def test_a_shape_at_the_edge_works(pool: str, shape: tuple[int, ...], order: str) -> None:
    want = np.asarray(content(shape, np.dtype("int32")), order=order)
    with gpushm.create("a", shape, "int32", pool=pool, order=order) as a:
        assert a.shape == shape and a.nbytes == want.nbytes
        a.copy_from_host(want)
        assert same(a.copy_to_host(), want)
        assert same(a.T.copy_to_host(), want.T)
        assert same(a.reshape(-1, order=order).copy_to_host() if want.size else np.empty(0, "i4"), want.ravel(order))
        if not shape:
            assert a[()] == want[()]
            with pytest.raises(IndexError):
                a[0]
            with pytest.raises(TypeError):
                len(a)


def test_more_than_32_axes_are_refused(host_pool: str) -> None:
    with pytest.raises(ValueError, match="32"):
        gpushm.create("a", (1,) * 33, pool=host_pool)
    with gpushm.create("a", (1,) * 32, pool=host_pool) as a, pytest.raises(ValueError):
        a[None]


def test_elements_and_assignments_equal_numpys(pool: str) -> None:
    want = content((4, 5), np.dtype("float32"))
    with gpushm.create("a", (4, 5), "float32", pool=pool) as a:
        a[:] = want
        a[1] = 7
        want[1] = 7
        a[2, 3] = -1
        want[2, 3] = -1
        a[:, 1] = [1, 2, 3, 4]
        want[:, 1] = [1, 2, 3, 4]
        a[0:2, ::2] = np.arange(3)
        want[0:2, ::2] = np.arange(3)
        a[3] = a[0]
        want[3] = want[0]
        a[1:] = a[:-1]
        want[1:] = want[:-1].copy()
        assert same(a.copy_to_host(), want)
        assert a[2, 3] == want[2, 3] and isinstance(a[2, 3], np.float32)
        assert len(a) == 4 and [r.shape for r in a] == [(5,)] * 4
        with pytest.raises(IndexError):
            a[4]
        with pytest.raises(IndexError):
            a[0, 0, 0]
        with pytest.raises(IndexError):
            a[..., ...]
        with pytest.raises(TypeError, match="copy"):
            a[[1, 2]]
        with pytest.raises(ValueError):
            a[0] = [1, 2, 3]


def test_regrouped_axes_equal_numpys(pool: str) -> None:
    want = content((4, 6), np.dtype("int16"))
    with gpushm.create("a", (4, 6), "int16", pool=pool) as a:
        a[:] = want
        assert same(a.reshape(2, 12).copy_to_host(), want.reshape(2, 12))
        assert same(a.reshape((-1, 3)).copy_to_host(), want.reshape(-1, 3))
        assert same(a.T.reshape(24, order="F").copy_to_host(), want.T.reshape(24, order="F"))
        assert same(a.ravel().copy_to_host(), want.ravel())
        assert same(a.transpose(1, 0).copy_to_host(), want.T)
        assert same(a.transpose((-1, 0)).copy_to_host(), want.T)
        assert same(a.transpose(None).copy_to_host(), want.T)
        assert same(a.view("uint8").copy_to_host(), want.view("uint8"))
        assert same(a.view(np.int32).copy_to_host(), want.view(np.int32))
        parts = np.split(want.ravel(), [7, 14, 21])
        assert all(same(x.copy_to_host(), y) for x, y in zip(a.ravel().split(7), parts, strict=True))
        for wrong in (lambda: a.reshape(5, 5), lambda: a.transpose(0, 0), lambda: a.transpose(0), lambda: a.split(3)):
            with pytest.raises(ValueError):
                wrong()
        with pytest.raises(NotImplementedError):
            a.T.ravel()
        with pytest.raises(ValueError):
            a[:, :5].view("int64")
        with pytest.raises(TypeError):
            a.reshape(24, wrong=1)


def test_a_record_over_bytes_has_its_fields(pool: str) -> None:
    record = np.dtype([("x", "i4"), ("y", "f4")])
    want = content((6, 16), np.dtype("uint8"))
    with gpushm.create("a", want.shape, "uint8", pool=pool) as a:
        a[:] = want
        seen = a[::2].view(record)
        assert seen.shape == (3, 2) and seen.dtype == record
        assert same(seen.copy_to_host(), want[::2].copy().view(record))
        assert same(seen["y"].copy_to_host(), want[::2].copy().view(record)["y"])
        assert same(seen[0].view("uint8").copy_to_host(), want[0])


def test_a_records_field_equals_numpys(pool: str) -> None:
    want = content((5,), RECORDS[0])
    with gpushm.create("a", 5, RECORDS[0], pool=pool) as a:
        a.copy_from_host(want)
        for name in want.dtype.names:
            assert same(a[name].copy_to_host(), want[name])
            assert same(a[1::2][name].copy_to_host(), want[1::2][name])
        a["box"] = 3
        want["box"] = 3
        assert same(a.copy_to_host(), want)
        with pytest.raises(KeyError, match="box"):
            a["bocks"]
    with gpushm.create("a", 5, RECORDS[3], pool=pool) as a, pytest.raises(ValueError, match="align=True"):
        a["y"]


@pytest.mark.parametrize(
    ("given", "want"),
    [("f4", "float32"), (float, "float64"), (np.uint16, "uint16"), (np.dtype("<i8"), "int64"), (bool, "bool"),
     (ml_dtypes.bfloat16, "bfloat16"), ("half", "float16"), ("float4_e2m1fn", "float4_e2m1fn")],
)
def test_a_dtype_is_understood_in_each_notation(host_pool: str, given: Any, want: str) -> None:
    with gpushm.create("a", 4, given, pool=host_pool) as a:
        assert a.dtype_name == want


@pytest.mark.parametrize("given", [">f4", object, "nonsense", np.dtype(("f4", (2,))), 7, [("a", "O")]], ids=str)
def test_a_dtype_that_cannot_be_shared_is_refused(host_pool: str, given: Any) -> None:
    with pytest.raises(TypeError):
        gpushm.create("a", 4, given, pool=host_pool)


def test_elements_of_a_memoryview_are_converted_or_refused(pool: str) -> None:
    values = np.arange(6).reshape(2, 3)
    with gpushm.create("a", (2, 3), "float64", pool=pool) as a:
        a.copy_from_host(memoryview(values))
        assert a.tolist() == values.tolist()
        a.copy_from_host(memoryview(values.astype(">f8")))
        assert a.tolist() == values.tolist()
        with pytest.raises(ValueError, match="shape"):
            a.copy_from_host(memoryview(values.reshape(3, 2).astype("f8")))
        for same in (values / 2, values.T.copy().T / 2, (values / 2).ravel(), (values / 2).ravel().view("u1")):
            a.copy_from_host(memoryview(same))
            assert a.tolist() == (values / 2).tolist()
        for wrong in (np.zeros((2, 3), "i8"), np.zeros((3, 2)), np.zeros((2, 3), ">f8")):
            with pytest.raises(TypeError, match="ary has elements of format"):
                a.copy_to_host(memoryview(wrong))
        for out in (np.zeros((2, 3)), np.zeros(6), np.zeros(48, "u1")):
            a.copy_to_host(memoryview(out))
            assert out.tobytes() == (values / 2).tobytes()


def test_packed_elements_keep_their_bits(pool: str) -> None:
    raw = bytes(range(8))
    with gpushm.create("a", (4, 4), "float4_e2m1fn", pool=pool) as a:
        assert (a.itemsize, a.nbytes, a.dtype, a.strides) == (0, 8, "float4_e2m1fn", (0, 0))
        a.copy_from_host(raw)
        out = bytearray(8)
        a.copy_to_host(out)
        assert bytes(out) == raw
        assert a.reshape(16).shape == (16,)
        with pytest.raises(NotImplementedError):
            a[0]
        with pytest.raises(TypeError, match=r"float4_e2m1fn.*copy_to_host\(bytearray"):
            a.copy_to_host()


def test_strides_that_were_asked_for_are_kept(pool: str) -> None:
    with gpushm.create("a", (3, 4), "int32", strides=(-16, 4), pool=pool) as a:
        assert a.strides == (-16, 4)
        a[:] = content((3, 4), np.dtype("int32"))
        assert same(a.copy_to_host(), content((3, 4), np.dtype("int32")))
    with pytest.raises(ValueError, match="2 dimensions"):
        gpushm.create("a", (3, 4), "int32", strides=(4,), pool=pool)


def test_an_array_like_another_has_its_shape_dtype_and_strides(host_pool: str) -> None:
    model = np.zeros((3, 4), "float32", order="F")
    with gpushm.create_like("a", model, pool=host_pool) as a, gpushm.create_like("b", a, pool=host_pool) as b:
        assert (a.shape, a.dtype, a.strides) == (b.shape, b.dtype, b.strides) == ((3, 4), np.float32, (4, 12))
    with to_device(model + 2, "a", pool=host_pool) as a:
        assert (a.copy_to_host() == 2).all()
        assert gpushm.numba.to_device(model, to=a) is a
        assert (a.copy_to_host() == 0).all()
    with gpushm.create("a", 3, "int8", pool=host_pool) as a:
        with pytest.raises(ValueError):
            a.copy_from_host(np.zeros(4, "int8"))
        with pytest.raises(TypeError, match="float64"):
            a.copy_from_host(np.zeros(3))
        a.copy_from_host([1, 2, 3])
        assert list(a) == [1, 2, 3]
