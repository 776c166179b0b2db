# SPDX-License-Identifier: MIT
"""What closes a buffer, and when; what prevents closing or sealing."""

from __future__ import annotations

import gc
import weakref

import gpushm
import numpy as np
import pytest


@pytest.fixture
def a(pool: str):  # noqa: ANN201
    """An array that is being filled."""
    with gpushm.create("a", (4, 6), "float32", pool=pool) as made:
        made[:] = np.arange(24).reshape(4, 6)
        yield made


def leases() -> int:
    """This process's leases, as the daemon counts them."""
    return gpushm.status().leases


def test_close_is_refused_and_names_the_views(a: gpushm.Array) -> None:
    view, other = a[1:, ::2], a.T
    named = r'"a" can\'t be closed: alive are 2 views \(\(6, 4\) float32; \(3, 3\) float32\)'
    with pytest.raises(BufferError, match=named):
        a.close()
    assert not a.closed and view[0, 0] == 6 and other.shape == (6, 4)
    view.close()
    assert view.closed
    with pytest.raises(ValueError, match="closed"):
        view.shape  # noqa: B018
    with pytest.raises(gpushm.errors.InUse):
        a.buffer.close()
    del other
    a.close()
    a.close()
    assert a.closed and a.buffer.closed and a.name == "a"
    for use in (lambda: a.shape, lambda: a[0], lambda: a.copy_to_host(), lambda: a.publish(), lambda: a.__enter__(),
                lambda: a.__dlpack__(), lambda: memoryview(a), lambda: a.state, lambda: len(a), lambda: a.T):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert "closed" in repr(a) and "closed" in repr(a.buffer)


@pytest.mark.parametrize("kind", ["memoryview", "numpy", "tensor", "legacy"])
def test_close_is_refused_and_names_the_export(a: gpushm.Array, kind: str) -> None:
    on_host = a.kind in ("host", "pinned")
    if kind in ("memoryview", "numpy") and not on_host:
        with pytest.raises((TypeError, BufferError), match="on a GPU"):
            memoryview(a) if kind == "memoryview" else a.numpy()
        return
    export = {
        "memoryview": lambda: memoryview(a),
        "numpy": lambda: a.T.numpy(),
        "tensor": lambda: a.__dlpack__(max_version=(1, 0)),
        "legacy": lambda: a.__dlpack__(),
    }[kind]()
    word = {"memoryview": "1 memoryview", "numpy": "1 NumPy array"}.get(kind, "1 DLPack tensor")
    for refused in (a.close, a.buffer.close, a.publish):
        with pytest.raises(BufferError, match=word if refused != a.publish else "writable"):
            refused()
    a.publish("shared")
    del export
    a.close()
    gpushm.unlink("a")


def test_a_with_block_warns_of_an_export_and_keeps_its_memory(a: gpushm.Array) -> None:
    a.publish()
    before = leases()
    with gpushm.open("a") as f, pytest.warns(ResourceWarning, match="1 DLPack tensor"):  # noqa: SIM117
        with f:
            tensor = f.__dlpack__(max_version=(1, 0))
    assert f.closed and leases() == before + 1
    with pytest.raises(ValueError, match="closed"):
        f.shape  # noqa: B018
    del tensor
    assert leases() == before
    a.close()
    gpushm.unlink("a")


def test_a_buffer_stays_open_until_its_last_export_ends(a: gpushm.Array) -> None:
    with pytest.warns(ResourceWarning, match="2 DLPack tensors"), a:
        tensors = [a.__dlpack__(), a[2].__dlpack__()]
    assert a.closed and leases() == 1
    tensors.pop()
    assert leases() == 1
    tensors.pop()
    assert leases() == 0


def test_a_view_closes_with_its_with_block(a: gpushm.Array) -> None:
    with a:
        view = a[1]
        assert list(view) == [6, 7, 8, 9, 10, 11]
    assert a.closed and view.closed and leases() == 0
    with pytest.raises(ValueError, match="closed"):
        view[0]


def test_an_exception_passes_through_a_with_block(a: gpushm.Array) -> None:
    with pytest.warns(ResourceWarning), pytest.raises(ZeroDivisionError), a:
        tensor = a.__dlpack__()
        1 / 0  # noqa: B018
    del tensor


def test_a_buffer_closes_with_its_last_array(pool: str) -> None:
    a = gpushm.create("a", 4, pool=pool)
    gone = weakref.ref(a)
    view = a[1:]
    del a
    assert gone() is None and leases() == 1
    del view
    assert leases() == 0
    buffer = gpushm.create("a", 4, pool=pool).buffer
    assert leases() == 1 and not buffer.closed
    array = buffer[""]
    del buffer
    assert array.shape == (4,) and leases() == 1
    del array
    assert leases() == 0


def test_a_buffer_in_a_cycle_is_collected(pool: str) -> None:
    class Node:
        pass

    node = Node()
    node.self, node.array = node, gpushm.create("a", 4, pool=pool)
    del node
    gc.collect()
    assert leases() == 0


def test_a_write_to_a_sealed_array_is_refused(a: gpushm.Array) -> None:
    a.publish()
    assert a.readonly == (a.kind != "none") and a.state == "sealed"
    for write in (lambda: a.__setitem__(0, 1), lambda: a.copy_from_host(np.zeros((4, 6), "f4")),
                  lambda: a.copy_to_device(np.zeros((4, 6), "f4"))):
        with pytest.raises(gpushm.errors.ReadOnly):
            write()
    with pytest.raises(gpushm.errors.StateError):
        a.publish()
    with pytest.raises(ValueError, match="sealed"):
        a.publish("open")
    a.unlink()


def test_a_write_by_a_reader_is_refused(a: gpushm.Array) -> None:
    a.publish("shared")
    with gpushm.open("a") as r, gpushm.open("a", "r+") as w:
        assert r.readonly and not w.readonly
        w[0] = 9
        assert r[0, 0] == 9 and a[0, 0] == 9
        with pytest.raises(gpushm.errors.ReadOnly):
            r[0] = 1
    with pytest.raises(ValueError, match='"r"'):
        gpushm.open("a", "w")
    a.unlink()


def test_a_closed_array_can_be_unlinked_once(a: gpushm.Array) -> None:
    a.publish()
    with gpushm.open("a") as reader:
        a.close()
        a.unlink()
        with pytest.raises(gpushm.errors.NotFound):
            gpushm.open("a")
        assert reader[1, 0] == 6
    with pytest.raises(FileNotFoundError):
        a.unlink()


def test_two_opens_of_one_process_close_independently(a: gpushm.Array) -> None:
    a.publish()
    with gpushm.open("a") as one, gpushm.open("a") as two:
        assert one.device_ptr == two.device_ptr and one.host_ptr == two.host_ptr
        one.close()
        assert two[3, 5] == 23
    a.unlink()


def test_a_transient_buffer_ends_with_its_last_user(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool, transient=True) as a:
        a.publish()
        assert gpushm.stat("a").transient
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.stat("a")


def test_an_unpublished_array_ends_with_its_creator(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool), pytest.raises(gpushm.errors.NotPublished):
        gpushm.open("a")
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.stat("a")


def test_many_arrays_of_one_buffer_keep_names_and_contents(pool: str) -> None:
    want = {f"layer{i}/w": np.full((i + 1, 3), i, "float32") for i in range(50)} | {"ids": np.arange(7)}
    with gpushm.create_many("m", want, pool=pool, attrs={"model": "x", "raw": b"\0\1"}) as b:
        for name, array in want.items():
            b[name].copy_from_host(array)
        assert list(b) == list(want) == b.keys() and len(b) == 51
        b.publish()
    with gpushm.open_many("m") as b:
        assert {k: v.shape for k, v in b.items()} == {k: v.shape for k, v in want.items()}
        assert all(np.array_equal(b[k].copy_to_host(), v) for k, v in want.items())
        assert "ids" in b and "no" not in b and 7 not in b and b.get("no") is None and b.get("ids").size == 7
        assert dict(b).keys() == want.keys() and len(b.values()) == 51
        assert b.attr("model") == b"x" and b.attr("raw") == b"\0\1" and b.attr("none", 3) == 3
        with pytest.raises(KeyError, match="no"):
            b["no"]
        array = b["ids"]
        with pytest.raises(gpushm.errors.InUse, match='"ids"'):
            b.close()
        assert array.array_name == "ids" and not array.owns_buffer
        del array
    with gpushm.open("m", array="ids") as ids:
        assert list(ids) == list(range(7))
    with pytest.raises(gpushm.errors.NotFound, match="51 arrays"):
        gpushm.open("m")
    with pytest.raises(gpushm.errors.NotFound, match="nothing"):
        gpushm.open("m", array="nothing")
    assert isinstance(b, __import__("collections").abc.Mapping)
    gpushm.unlink("m")


def test_an_array_laid_over_a_buffer_is_checked(a: gpushm.Array) -> None:
    a.publish()
    with gpushm.open("a", shape=(6,), offset=24) as row:
        assert list(row) == [6, 7, 8, 9, 10, 11] and row.dtype == np.float32
    with gpushm.open("a", dtype="uint8", shape=96) as raw:
        assert raw.copy_to_host().tobytes() == np.arange(24, dtype="f4").tobytes()
    with gpushm.open("a", shape=(3, 2), strides=(-24, 4), offset=72) as back:
        assert back.copy_to_host().tolist() == [[18, 19], [12, 13], [6, 7]]
    for wrong in ({"shape": 25}, {"offset": 4}, {"shape": (2, 2), "strides": (4,)}, {"shape": 4, "offset": 94},
                  {"shape": 4, "strides": (-4,)}, {"dtype": "float64"}):
        with pytest.raises((gpushm.errors.LayoutError, ValueError)):
            gpushm.open("a", **wrong)
    with pytest.raises(OverflowError):
        gpushm.open("a", offset=-4)
    with gpushm.open("a") as f, f.buffer.array((2,), "int32", offset=8) as two:
        assert two.view("float32").copy_to_host().tolist() == [2, 3]
    a.unlink()


def test_an_array_in_fortran_order_keeps_its_order(pool: str) -> None:
    values = np.arange(6, dtype="f4").reshape(2, 3)
    with gpushm.create("f", (2, 3), "float32", pool=pool, order="F") as a:
        a[...] = values
        a.publish()
    for same in ({"shape": (2, 3)}, {"dtype": "float32"}, {"offset": 0}, {"shape": (2, 3), "dtype": "float32"}):
        with gpushm.open("f", **same) as b:
            assert b.copy_to_host().tolist() == values.tolist()
    with gpushm.open("f", dtype="int32") as bits:
        assert bits.copy_to_host().tolist() == values.view("i4").tolist()
    for other in ({"shape": (3, 2)}, {"shape": 6}, {"dtype": "uint8", "shape": 24}, {"dtype": "int16"}):
        with pytest.raises(gpushm.errors.BadArgument, match="not in C order"):
            gpushm.open("f", **other)
    with gpushm.open("f", shape=6, strides=4) as row, gpushm.open("f", shape=6, dtype="f4", offset=0) as raw:
        assert row.tolist() == raw.tolist() == values.T.ravel().tolist()
    gpushm.unlink("f")


def test_a_section_defers_the_cleanup_of_gpu_memory(pool: str) -> None:
    with gpushm.numba.defer_cleanup():
        with gpushm.numba.defer_cleanup():
            a = gpushm.create("a", 4, pool=pool)
            on_gpu, nbytes = a.device is not None or a.kind == "pinned", a.nbytes
            a.close()
        count, pending = gpushm.numba.pending_cleanup()
        assert (count == 1 and pending >= nbytes) if on_gpu else (count, pending) == (0, 0)
        if on_gpu:
            with pytest.raises(gpushm.errors.StateError):
                gpushm.numba.flush_cleanup()
    gpushm.numba.flush_cleanup()
    assert gpushm.numba.pending_cleanup() == (0, 0)
    gpushm.numba.set_cleanup_limits(max_count=0, max_ratio=0.2)
    with pytest.raises(ValueError):
        gpushm.numba.set_cleanup_limits(0, 2.0)
