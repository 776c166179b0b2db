# SPDX-License-Identifier: MIT
"""What an Array says of its elements, compared with NumPy; and that it computes nothing."""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device

WANT = np.arange(1, 13, dtype="int32").reshape(3, 4)
HOST = ("host", "pinned")


@pytest.fixture
def a(pool: str) -> Any:
    with to_device(WANT, "a", pool=pool) as made:
        yield made
        made.publish("shared") if made.state == "filling" else None
    gpushm.unlink("a")


class OnGpu:
    """An array of a stand-in for CuPy: the elements on the host, and where they came from."""

    __module__ = "cupy"

    def __init__(self, array: Any) -> None:
        self.array, self.value = array, array.copy_to_host()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.value, name)

    def __eq__(self, other: object) -> Any:
        return self.value == getattr(other, "value", other)

    __hash__ = None


@pytest.fixture
def cupy(monkeypatch: pytest.MonkeyPatch) -> Any:
    class Device:
        entered: list[int] = []

        def __init__(self, ordinal: int) -> None:
            self.ordinal = ordinal

        def __enter__(self) -> None:
            self.entered.append(self.ordinal)

        def __exit__(self, *raised: object) -> None: ...

    class Stream:
        ptr = 1

    module: Any = ModuleType("cupy")
    module.asarray = OnGpu
    module.cuda = ModuleType("cupy.cuda")
    module.cuda.Device = Device
    module.cuda.get_current_stream = lambda device=None: Stream()
    monkeypatch.setitem(sys.modules, "cupy", module)
    return module


def same(got: Any, want: Any) -> None:
    assert type(got) is type(want) and np.array_equal(got, want) and np.asarray(got).dtype == np.asarray(want).dtype


def test_numbers_and_lists_are_those_of_numpy(a: gpushm.Array) -> None:
    one = a[:1, :1]
    assert (one.item(), int(one), float(one), complex(one), bool(one)) == (1, 1, 1.0, 1, True)
    assert "abc"[a[0, 0, ...]] == "b" and a.tolist() == WANT.tolist() and a[1, 2:2].tolist() == []
    assert a[...].T.tolist() == WANT.T.tolist()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a)
    for wrong in (a.item, lambda: operator.index(a), lambda: operator.index(one)):
        with pytest.raises((ValueError, TypeError)):
            wrong()
    if a.kind in HOST:
        assert 5 in a and 77 not in a


def test_an_index_is_a_whole_number(host_pool: str) -> None:
    with gpushm.create("f", (1,), "float32", pool=host_pool) as f:
        with pytest.raises(TypeError):
            operator.index(f)
        f.discard()


def test_an_array_computes_nothing_but_others_compute_with_it(a: gpushm.Array) -> None:
    def in_place() -> None:
        b = a
        b += 1

    for wrong in (lambda: a + 1, lambda: 1 - a, lambda: -a, lambda: a @ a, lambda: a < a, in_place):
        with pytest.raises(TypeError, match="Array"):
            wrong()
    if a.kind in HOST:
        same(np.add(a, 1), WANT + 1)
        same(a.numpy() @ a.T.numpy(), WANT @ WANT.T)
        same(WANT - a, WANT - WANT)


def test_equality_is_by_element_and_hashing_by_identity(a: gpushm.Array) -> None:
    for other in (a, a[...], WANT, WANT.tolist()):
        assert np.array_equal(a == other, np.ones((3, 4), bool)) and not np.any(a != other)
    assert np.array_equal(a == 3, WANT == 3) and np.array_equal(a != WANT.T[0, 0], WANT != 1)
    with gpushm.create("b", (3, 4), "int32", pool="host") as b:
        b[...] = WANT
        assert np.all(a == b) and np.all(b == a)
        b.discard()
    # An object is found in a set by what it is.
    view = a[...]
    assert len({a, view, a}) == 2 and {a: 1}[a] == 1 and a in [a]


def test_a_read_only_array_is_not_filled(a: gpushm.Array) -> None:
    a.publish()
    with pytest.raises(gpushm.errors.ReadOnly):
        a.fill(0)
    assert np.array_equal(a.copy_to_host(), WANT)


def test_cupy_compares_on_the_gpu_of_the_array(a: gpushm.Array, cupy: Any) -> None:
    if a.kind in HOST:
        return
    same(a == 3, WANT == 3)
    assert cupy.cuda.Device.entered and set(cupy.cuda.Device.entered) == {a.device}


VALUES: dict[str, Any] = {"uint8": 7, "int16": -2, "float32": 1.5, "float64": np.pi, "complex128": 1 + 2j, "bool": True}


@pytest.mark.parametrize("dtype", VALUES)
@pytest.mark.parametrize("stream", [None, 2], ids=["now", "queued"])
def test_fill_sets_exactly_the_elements_of_its_view(pool: str, dtype: str, stream: int | None) -> None:
    value = VALUES[dtype]
    with gpushm.create("a", (3, 40000), dtype, pool=pool) as a:
        want = np.zeros((3, 40000), dtype)
        for key in (np.s_[...], np.s_[1:2], np.s_[:, 1:3], np.s_[::-1, ::2], np.s_[0:0], np.s_[1, :1]):
            a.fill(0)
            want.fill(0)
            a[key].fill(value, stream) if stream else a[key].fill(value)
            want[key] = value
            assert np.array_equal(a.copy_to_host(), want)
        with gpushm.numba.auto_synchronize(stream) if a.device_ptr and stream else gpushm.numba.defer_cleanup():
            a.T.fill(value, stream)
        assert (a.copy_to_host() == value).all()
        with pytest.raises(ValueError, match="one value"):
            a.fill([1, 2])
        a.discard()


def test_a_missing_attribute_is_explained(a: gpushm.Array) -> None:
    with pytest.raises(AttributeError, match=r"numpy\(\)" if a.kind in HOST else r"cupy.asarray"):
        a.sum()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        a.nonsense  # noqa: B018
    assert not hasattr(a, "__array_struct__") and not hasattr(a, "__array_ufunc__")
    if a.kind == "host":
        with pytest.raises(AttributeError, match="CUDA Array Interface"):
            a.__cuda_array_interface__  # noqa: B018


TORCH = """
import gpushm, torch
ones = torch.ones(3, 4, dtype=torch.int32)
with gpushm.open("a") as a:
    for got in (a == ones, ones != a):
        assert type(got) is torch.Tensor, got
    print((a == ones).sum().item())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
def test_a_tensor_is_compared_by_torch(a: gpushm.Array, in_child: Callable[..., str]) -> None:
    if a.kind in HOST:
        a.publish("shared")
        assert in_child(TORCH).split() == ["1"]
