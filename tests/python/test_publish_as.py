# SPDX-License-Identifier: MIT
"""publish_as(), set_attrs(), describe() and create_many(nbytes=): buffers that are finished after they were created."""

from __future__ import annotations

import gpushm
import pytest


def test_publish_as_gives_the_buffer_its_new_name(pool: str) -> None:
    with gpushm.create("~/hidden", 4, "int32", pool=pool) as a:
        a[...] = 5
        a.publish_as("model", "shared")
        assert (a.name, a.state) == ("model", "shared")
    with gpushm.open("model") as a:
        assert a.copy_to_host().tolist() == [5] * 4
    assert [b.name for b in gpushm.ls()] == ["model"]
    gpushm.unlink("model")


def test_replace_leaves_the_old_buffer_alone(pool: str) -> None:
    for value in (1, 2, 3):
        with gpushm.create(f"~/hidden{value}", 4, "int32", pool=pool) as a:
            a[...] = value
            if value == 2:
                with pytest.raises(gpushm.errors.Exists):
                    a.publish_as("model")
                assert (a.name, a.state) == ("~/hidden2", "filling")
            a.publish_as("model", replace=True)
        with gpushm.open("model") as now:
            assert now.copy_to_host().tolist() == [value] * 4
        if value == 1:
            held = gpushm.open("model")
    assert held.copy_to_host().tolist() == [1] * 4
    held.close()
    gpushm.unlink("model")


def test_publish_as_refuses_wrong_names_and_states(host_pool: str) -> None:
    with gpushm.create("a", 4, pool=host_pool) as a:
        for name, error in ((5, TypeError), ("", ValueError), ("a\0b", ValueError), ("x" * 300, OSError)):
            with pytest.raises(error):
                a.publish_as(name)  # type: ignore[arg-type]
        with pytest.raises(ValueError, match='not "open"'):
            a.publish_as("b", "open")  # type: ignore[arg-type]
        a.publish()
        with pytest.raises(gpushm.errors.StateError):
            a.publish_as("b")
    gpushm.unlink("a")


def test_attributes_can_be_set_until_publication(host_pool: str) -> None:
    with gpushm.create_many("a", {"x": (3, "uint8")}, pool=host_pool, attrs={"one": "1", "two": b"2"}) as b:
        b.set_attrs({"two": "II", "one": b"", "three": b"\0"})
        assert (b.attr("one"), b.attr("two"), b.attr("three")) == (None, b"II", b"\0")
        with pytest.raises(gpushm.errors.LimitReached):
            b.set_attrs({"large": b"x" * 5000})
        with pytest.raises(TypeError):
            b.set_attrs({"a": 5})  # type: ignore[dict-item]
        b.set_attrs({})
        b.publish()
        with pytest.raises(gpushm.errors.StateError):
            b.set_attrs({"one": "1"})
    assert gpushm.stat("a").attrs == {"two": b"II", "three": b"\0"}
    gpushm.unlink("a")


def test_arrays_lie_where_they_are_described(pool: str) -> None:
    with gpushm.create_many("a", {}, nbytes=4096, pool=pool) as b:
        assert len(b) == 0 and b.nbytes == 4096
        b.describe({"whole": ((4, 6), "float32", None, 512), "column": (4, "float32", (24,), 516)})
        b.describe({"tied": ((4, 6), "float32", (24, 4), 512), "none": ((0, 3), "int8", None, 0)})
        assert list(b) == ["whole", "column", "tied", "none"]
        b["whole"] = 3
        b["column"] = 7
        b.publish()
    with gpushm.open_many("a") as b:
        rows = b["tied"].copy_to_host().tolist()
        assert rows == [[3, 7, 3, 3, 3, 3]] * 4 and b["tied"].offset == b["whole"].offset == 512
    gpushm.unlink("a")


def test_a_wrong_description_is_refused(host_pool: str) -> None:
    with gpushm.create_many("a", {"x": (8, "uint8")}, nbytes=64, pool=host_pool) as b:
        wrong: list[tuple[object, type[BaseException]]] = [
            ({"y": (8, "uint8")}, TypeError),
            ({"y": [8, "uint8", None, 0]}, TypeError),
            ({"y": (8, "uint8", None, -1)}, Exception),
            ({"y": (8, "uint8", None, 57)}, gpushm.errors.LayoutError),
            ({"y": (8, "uint8", (1, 1), 0)}, ValueError),
            ({"y": (8, "nothing", None, 0)}, TypeError),
            ({"x": (8, "uint8", None, 0)}, gpushm.errors.Exists),
            (5, (TypeError, AttributeError)),
        ]
        for arrays, error in wrong:
            with pytest.raises(error):
                b.describe(arrays)  # type: ignore[arg-type]
        assert list(b) == ["x"]
        b.describe({})
        b.publish()
        with pytest.raises(gpushm.errors.StateError):
            b.describe({"y": (8, "uint8", None, 0)})
    with pytest.raises(ValueError, match="closed"):
        b.describe({})
    gpushm.unlink("a")


def test_a_buffer_too_small_for_its_arrays_is_refused(host_pool: str) -> None:
    with pytest.raises(gpushm.errors.LayoutError):
        gpushm.create_many("a", {"x": (65, "uint8")}, nbytes=64, pool=host_pool)
    assert gpushm.ls() == []
