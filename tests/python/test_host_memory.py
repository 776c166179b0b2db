# SPDX-License-Identifier: MIT
"""Host memory that a GPU reaches: arrays of pinned pools, and sections that pin other memory."""

from __future__ import annotations

import ctypes
import pickle
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device

PINNED = [p.name for p in gpushm.pools() if p.kind == "pinned"]
with_a_driver = pytest.mark.skipif(not PINNED, reason="no driver, nor our own libcuda")
without_a_driver = pytest.mark.skipif(bool(PINNED), reason="a driver")


@with_a_driver
@pytest.mark.parametrize("make", [gpushm.numba.pinned_array, gpushm.numba.mapped_array], ids=lambda m: m.__name__)
def test_cpu_and_gpu_share_a_pinned_array(make: Any) -> None:
    with make((3, 4), "float64") as a:
        assert (a.kind, a.pool, a.shape, a.state) == ("pinned", PINNED[0], (3, 4), "filling")
        a.numpy()[...] = 5
        there = gpushm.as_array(Interface(a))
        assert (there.copy_to_host() == 5).all() and there.device_ptr == a.host_ptr
        assert memoryview(a)[1, 2] == 5
        del there
    with make(4) as a:
        assert (a.kind, a.dtype) == ("pinned", np.dtype("float64"))
        a.publish()
    assert gpushm.ls() == []
    with make((3, 4), "int8", order="F") as a:
        a.publish_as("a", "shared")
        with gpushm.open("a", "r+") as b:
            b[1, 1] = 3
        assert a[1, 1] == 3 and a.is_f_contiguous()


class Interface:
    def __init__(self, array: Any) -> None:
        self.__cuda_array_interface__ = array.__cuda_array_interface__


@with_a_driver
def test_a_pinned_array_is_like_its_model() -> None:
    for model in (np.zeros((2, 3), "complex64", order="F"), np.zeros((4, 6), "int16")[::2], np.float32(1)):
        with gpushm.numba.pinned_array_like(model) as a, gpushm.numba.mapped_array_like(a) as b:
            assert (a.shape, a.dtype) == (b.shape, b.dtype) == (model.shape, model.dtype)
            assert a.is_f_contiguous() == b.is_f_contiguous() == np.copy(model, order="K").flags.f_contiguous


@without_a_driver
def test_without_a_gpu_the_reason_is_told() -> None:
    with pytest.raises(gpushm.errors.NotFound, match="no pinned pool: it has no GPU"):
        gpushm.numba.pinned_array(4)
    for section in (gpushm.numba.pinned, gpushm.numba.mapped):
        with pytest.raises(gpushm.errors.DeviceFailed, match=r"libcuda\.so\.1"), section(np.zeros(4)):
            pass


def contexts_held() -> int:
    """Primary contexts that are retained and not released. Only the fake driver counts them."""
    try:
        calls = ctypes.CDLL("libcuda.so.1").fakecuda_calls
    except AttributeError:
        return 0
    return int(calls(b"cuDevicePrimaryCtxRetain") - calls(b"cuDevicePrimaryCtxRelease"))


@with_a_driver
def test_a_section_unpins_its_memory() -> None:
    held = contexts_held()
    one, two = np.ones(10), np.ones((4, 4), order="F")
    for _ in range(2):
        with gpushm.numba.pinned(one, two, np.empty(0)):
            pass
    assert contexts_held() == held
    with pytest.raises(gpushm.errors.DriverError, match="ALREADY_REGISTERED"), gpushm.numba.pinned(one, two, one):
        pass
    with gpushm.numba.pinned(two), gpushm.numba.pinned(one):
        pass
    with pytest.raises(KeyError), gpushm.numba.pinned(one):
        raise KeyError
    with gpushm.numba.pinned(one):
        pass


@with_a_driver
def test_a_mapped_array_shares_memory_within_its_section() -> None:
    host = np.arange(12, dtype="int32").reshape(3, 4)
    with gpushm.numba.mapped(host) as there:
        told = there.__cuda_array_interface__
        assert (told["shape"], told["typestr"], told["version"]) == ((3, 4), "<i4", 3)
        assert np.array_equal(to_device(there, "a", pool="host").copy_to_host(), host)
        there[1, 1] = 50
        assert host[1, 1] == 50 == there[1, 1] and there.numpy() is host
        assert (there.shape, there.dtype, np.asarray(there).tolist()) == (host.shape, host.dtype, host.tolist())
    with pytest.raises(AttributeError, match="section"):
        _ = there.__cuda_array_interface__
    assert "ended" in repr(there)
    with pytest.raises(TypeError, match="address of this process"):
        pickle.dumps(there)
    with gpushm.numba.mapped(host, np.ones(3)) as (a, b):
        assert (a.shape, b.shape) == ((3, 4), (3,))
    host.flags.writeable = False
    with gpushm.create("a", 8, "float32", pool="host") as a, gpushm.numba.mapped(a) as there:
        there[...] = 2
        assert (a.copy_to_host() == 2).all()
        del there


@with_a_driver
def test_a_close_is_refused_while_memory_is_pinned() -> None:
    with gpushm.create("a", 4, pool="host") as a:
        for section in (gpushm.numba.pinned, gpushm.numba.mapped):
            with section(a), pytest.raises(gpushm.errors.InUse):
                a.close()


@with_a_driver
def test_what_cannot_be_pinned_is_refused(host_pool: str) -> None:
    for wrong, error in ((np.zeros((4, 4))[::2, ::2], ValueError), ([1, 2, 3], TypeError)):
        with pytest.raises(error), gpushm.numba.pinned(wrong):
            pass
    gpu = next(p.name for p in gpushm.pools() if p.kind == "vmm")
    with gpushm.create("a", 4, pool=gpu) as a, pytest.raises(TypeError, match="on a GPU"), gpushm.numba.mapped(a):
        pass
    with gpushm.numba.pinned_array(4) as a, gpushm.numba.pinned(a), gpushm.numba.mapped(a) as there:
        # Its memory is always pinned.
        assert there.__cuda_array_interface__["data"][0] == a.device_ptr
        del there
