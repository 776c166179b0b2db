# SPDX-License-Identifier: MIT
"""gpushm.cupy with stand-ins for CuPy's pointers and arrays, because its runtime can't use the fake driver. They show
how memory is taken, divided and freed; gpu/test_cupy.py has CuPy itself.
"""

from __future__ import annotations

import importlib
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import gpushm
import pytest

POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool") and not p.failed]
if not POOLS:
    pytest.skip("no driver", allow_module_level=True)


class Array:
    """As cupy.ndarray: bytes at a pointer, by the CUDA Array Interface."""

    def __init__(self, pointer: Any, nbytes: int, offset: int = 0) -> None:
        self.memory, shape = pointer.mem, (nbytes,)
        self.__cuda_array_interface__ = {
            "shape": shape, "typestr": "|u1", "data": (pointer.mem.ptr + offset, False), "version": 3, "stream": None,
        }  # fmt: skip


@pytest.fixture
def ours(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """gpushm.cupy."""
    stand_in: Any = ModuleType("cupy")
    stand_in.cuda = SimpleNamespace(
        UnownedMemory=lambda ptr, size, owner, device: SimpleNamespace(ptr=ptr, size=size, owner=owner, device=device),
        get_current_stream=lambda *device: SimpleNamespace(ptr=0),
        MemoryPointer=lambda mem, offset: SimpleNamespace(mem=mem, offset=offset),
    )
    stand_in.asarray = lambda array: array
    monkeypatch.setitem(sys.modules, "cupy", stand_in)
    yield importlib.import_module("gpushm.cupy")
    del sys.modules["gpushm.cupy"]
    del gpushm.cupy  # type: ignore[attr-defined]


@pytest.fixture(params=POOLS)
def allocator(request: pytest.FixtureRequest, ours: Any) -> Iterator[Any]:
    made = ours.Allocator(request.param)
    yield made
    made._blocks.clear()


def test_small_arrays_share_a_buffer_that_ends_with_the_last(allocator: Any) -> None:
    small = [allocator(n) for n in (0, 1, 512, 513, 4096)]
    starts = [p.mem.ptr - small[0].mem.ptr for p in small]
    assert starts == [0, 512, 1024, 1536, 2560] and [b.nbytes for b in gpushm.ls()] == [2 << 20]
    many = [allocator(4096) for _ in range(1000)]
    assert len(gpushm.ls()) == 2 and len({p.mem.ptr for p in many}) == 1000
    large = allocator((1 << 20) + 1)
    assert len(gpushm.ls()) == 3
    del large, small
    assert len(gpushm.ls()) == 2
    del many
    # The one that is being filled.
    assert len(gpushm.ls()) == 1


def test_a_large_array_gets_a_name_without_a_copy(allocator: Any, ours: Any) -> None:
    array = Array(allocator(3 << 20), 3 << 20)
    published = ours.publish(array, "whole")
    assert published.device_ptr == array.memory.ptr and published.shape == (3 << 20,)
    del published
    with gpushm.open("whole", "r+") as other:
        other[0] = 9
    # It has a name by now.
    copy = ours.publish(array, "again")
    assert copy.device_ptr != array.memory.ptr and copy[0] == 9


def test_a_part_gets_a_name_by_a_copy_that_lasts_as_long_as_the_array(allocator: Any, ours: Any) -> None:
    array = Array(allocator(100), 100)
    ours.publish(array, "part")
    with gpushm.open("part") as other:
        assert other.shape == (100,)
    with pytest.raises(gpushm.errors.Exists):
        ours.publish(array, "part")
    ours.publish(array, "part", replace=True)
    del array
    with pytest.raises(gpushm.errors.NotFound):
        gpushm.stat("part")


def test_a_handle_is_of_a_part(allocator: Any, ours: Any) -> None:
    pointers = [allocator(100) for _ in range(2)]
    array = Array(pointers[1], 50, offset=10)
    opened = pickle.loads(pickle.dumps(ours.handle(array))).open()
    assert opened.device_ptr == pointers[1].mem.ptr + 10 and opened.shape == (50,)
    # The buffer goes on to be filled.
    assert allocator(100).mem.ptr == pointers[1].mem.ptr + 512


def test_memory_that_is_not_the_daemons_is_refused(ours: Any) -> None:
    with pytest.raises(gpushm.errors.DriverError):
        ours.handle(Array(SimpleNamespace(mem=SimpleNamespace(ptr=4096)), 16))
    with pytest.raises(gpushm.errors.NotFound, match='no vmm or mempool pool "host"'):
        ours.Allocator("host")(16)
