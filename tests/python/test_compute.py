# SPDX-License-Identifier: MIT
"""Arithmetic, comparisons and the few methods of NumPy's that an Array has, each compared with NumPy's."""

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

WANT = np.arange(1, 13, dtype="int32").reshape(3, 4)
HOST = ("host", "pinned")
BINARY = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and_", "or_", "xor", "lshift", "rshift"]
BINARY += ["lt", "le", "gt", "ge", "eq", "ne"]
IN_PLACE = ["iadd", "isub", "imul", "ifloordiv", "imod", "ipow", "iand", "ior", "ixor", "ilshift", "irshift"]


@pytest.fixture
def a(pool: str) -> Any:
    with gpushm.to_device(WANT, "a", pool=pool) as made:
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

    def __add__(self, other: Any) -> Any:
        return self.value + getattr(other, "value", other)

    def __radd__(self, other: Any) -> Any:
        return getattr(other, "value", other) + self.value

    def __eq__(self, other: object) -> Any:
        return self.value == getattr(other, "value", other)

    __hash__ = None

    def __iadd__(self, other: Any) -> Any:
        self.array.copy_from_host(self.value + getattr(other, "value", other))
        return self


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


@pytest.mark.parametrize("name", BINARY)
def test_an_operator_equals_numpys(a: gpushm.Array, name: str) -> None:
    if a.kind not in HOST:
        return
    f = getattr(operator, name)
    for other in (2, WANT, np.int64(3), WANT[0], [[2], [1], [3]]):
        same(f(a, other), f(WANT, other))
        same(f(other, a), f(other, WANT)) if not isinstance(other, list) else None
    same(f(a, a), f(WANT, WANT))
    same(f(a.T, a.T), f(WANT.T, WANT.T))


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_operator_in_place_writes_and_returns_the_array(a: gpushm.Array, name: str) -> None:
    if a.kind not in HOST:
        return
    f, want = getattr(operator, name), WANT.copy()
    assert f(a, 2) is a
    f(want, 2)
    assert np.array_equal(a.copy_to_host(), want)
    part = a[1:, ::2]
    f(part, np.ones((2, 2), "i4"))
    f(want[1:, ::2], np.ones((2, 2), "i4"))
    assert np.array_equal(a.copy_to_host(), want)


def test_unary_operators_matrices_and_numbers_equal_numpys(a: gpushm.Array) -> None:
    one = a[:1, :1]
    assert (one.item(), int(one), float(one), complex(one), bool(one)) == (1, 1, 1.0, 1, True)
    assert a.tolist() == WANT.tolist() and a[1, 2:2].tolist() == [] and a[...].T.tolist() == WANT.T.tolist()
    with pytest.raises(ValueError, match="ambiguous"):
        bool(a)
    with pytest.raises((ValueError, TypeError)):
        a.item()
    if a.kind not in HOST:
        return
    for f in (operator.neg, operator.pos, operator.abs, operator.invert):
        same(f(a), f(WANT))
    same(a @ a.T, WANT @ WANT.T)
    same(WANT @ a.T, WANT @ WANT.T)
    assert 5 in a and 77 not in a
    same(a.sum(), WANT.sum())
    for name in ("sum", "prod", "mean", "min", "max", "argmin", "argmax", "any", "all"):
        same(getattr(a, name)(), getattr(WANT, name)())
        same(getattr(a, name)(axis=1), getattr(WANT, name)(axis=1))
    same(a.astype("float16"), WANT.astype("float16"))
    same(a.copy(), WANT.copy())
    assert not np.shares_memory(a.copy(), a.numpy())


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


def test_a_change_in_place_of_a_read_only_array_is_refused(a: gpushm.Array, cupy: Any) -> None:
    a.publish()
    with pytest.raises(gpushm.ReadOnly):
        a += 1
    with pytest.raises(gpushm.ReadOnly):
        a.fill(0)
    assert np.array_equal(a.copy_to_host(), WANT)


def test_a_gpu_array_is_computed_on_the_host_only_on_request(a: gpushm.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    if a.kind in HOST:
        return
    for name in ("cupy", "torch"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    for wrong in (lambda: a + 1, lambda: 1 - a, lambda: -a, lambda: a.sum(), lambda: a.copy(), lambda: a.astype("f4"),
                  lambda: operator.iadd(a, 1), lambda: a < a):
        with pytest.raises(TypeError, match=r"CuPy or PyTorch.*copy_to_host\(\)"):
            wrong()
    # The other operand says that NumPy shall compute.
    same(a + WANT, WANT + WANT)
    same(WANT - a, WANT - WANT)
    with pytest.raises(TypeError, match="in place"):
        a += WANT
    with gpushm.create("b", (3, 4), "int32", pool="host") as b:
        for wrong in (lambda: a + b, lambda: b * a):
            with pytest.raises(TypeError, match="one array is on a GPU"):
                wrong()
        b.discard()


def test_cupy_computes_and_the_next_consumer_is_ordered_behind_it(a: gpushm.Array, cupy: Any) -> None:
    if a.kind in HOST:
        return
    same(a + 1, WANT + 1)
    same(1 + a, WANT + 1)
    same(a + a[::-1], WANT + WANT[::-1])
    same(a + cupy.asarray(a), WANT + WANT)
    same(cupy.asarray(a) + 1, WANT + 1)
    same(a.sum(axis=0), WANT.sum(axis=0))
    same(a.astype("f4"), WANT.astype("f4"))
    same(a.copy(), WANT)
    same(a == 3, WANT == 3)
    assert cupy.cuda.Device.entered and set(cupy.cuda.Device.entered) == {a.device}
    held = a
    held += 1
    assert held is a and np.array_equal(a.copy_to_host(), WANT + 1)
    # The next consumer is ordered behind CuPy's stream.
    assert a.__cuda_array_interface__["stream"] == 1


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
        with gpushm.auto_synchronize(stream) if a.device_ptr and stream else gpushm.defer_cleanup():
            a.T.fill(value, stream)
        assert (a.copy_to_host() == value).all()
        with pytest.raises(ValueError, match="one value"):
            a.fill([1, 2])
        a.discard()


def test_a_missing_attribute_is_explained(a: gpushm.Array) -> None:
    with pytest.raises(AttributeError, match=r"numpy\(\)" if a.kind in HOST else r"cupy.asarray"):
        a.cumsum()
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        a.nonsense  # noqa: B018
    assert not hasattr(a, "__array_struct__") and not hasattr(a, "__array_ufunc__")
    if a.kind == "host":
        with pytest.raises(AttributeError, match="CUDA Array Interface"):
            a.__cuda_array_interface__  # noqa: B018


TORCH = """
import warnings
import gpushm, torch
warnings.simplefilter("error")
ones = torch.ones(3, 4, dtype=torch.int32)
with gpushm.open("a", "r+") as a:
    for got in (a + ones, ones + a, a * (ones + 1), a == ones, ones != a):
        assert type(got) is torch.Tensor, got
    print((ones + a).tolist() == (a + ones).tolist() == (a + 1).tolist() == (a.copy_to_host() + 1).tolist())
    b = a
    b += ones
    print(a.sum())
with gpushm.open("a") as a:
    print((a + ones).sum().item())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
def test_arithmetic_with_a_tensor_is_done_by_torch(a: gpushm.Array, in_child: Callable[..., str]) -> None:
    if a.kind in HOST:
        a.publish("shared")
        assert in_child(TORCH).split() == ["True", "90", "102"]
