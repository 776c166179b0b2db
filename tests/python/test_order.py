# SPDX-License-Identifier: MIT
"""What comes after work that other libraries have queued: publish(), and copies without a stream.

The libraries are stand-ins, and the driver is asked what was waited for. gpu/test_libraries.py has the libraries.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import gpushm
import numpy as np
import pytest


class Libraries:
    """PyTorch and CuPy: the numbers of their current streams, and on which GPU they were asked for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.monkeypatch = monkeypatch
        self.asked: list[Any] = []

    def torch(self, stream: int, started: bool = True) -> None:
        module: Any = ModuleType("torch")
        module.cuda = ModuleType("torch.cuda")
        module.cuda.is_initialized = lambda: started
        module.cuda.current_stream = lambda device: self._asked(device, cuda_stream=stream)
        self.monkeypatch.setitem(sys.modules, "torch", module)

    def cupy(self, stream: int) -> None:
        module: Any = ModuleType("cupy")
        module.cuda = ModuleType("cupy.cuda")
        module.cuda.get_current_stream = lambda device=None: self._asked(device, ptr=stream)
        self.monkeypatch.setitem(sys.modules, "cupy", module)

    def _asked(self, device: Any, **words: int) -> Any:
        self.asked.append(device)
        return type("Stream", (), words)()


@pytest.fixture
def libraries(monkeypatch: pytest.MonkeyPatch) -> Libraries:
    for name in ("torch", "cupy"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return Libraries(monkeypatch)


@pytest.fixture
def waited(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The streams that were waited for."""
    found: list[Any] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: found.append(stream))
    return found


COPIES: dict[str, Callable[[Any], Any]] = {
    "to": lambda a: a.copy_to_host(),
    "from": lambda a: a.copy_from_host(np.zeros(a.shape, a.dtype)),
    "element": lambda a: a[0, 0],
    "tolist": lambda a: a.tolist(),
    "array": np.asarray,
}


@pytest.mark.parametrize("what", COPIES)
def test_a_copy_waits_for_what_libraries_have_queued(
    pool: str, what: str, libraries: Libraries, waited: list[Any]
) -> None:
    with gpushm.create("a", (4, 6), "float32", pool=pool) as a:
        libraries.torch(0x70)
        libraries.cupy(0xC0)
        COPIES[what](a)
        assert waited == ([] if a.kind == "host" or (a.kind == "pinned" and what in ("array",)) else [0x70, 0xC0])
        assert set(libraries.asked) <= {None if a.kind == "pinned" else a.device}
        del waited[:]
        a.copy_to_host(np.empty((4, 6), "f4"), stream=2)
        assert waited == []
        # The copy itself waits for default streams.
        libraries.torch(0)
        libraries.cupy(2)
        COPIES[what](a)
        assert waited == []
        # A library that has not started CUDA has queued nothing, and is not started.
        libraries.torch(0x70, started=False)
        a.copy_to_host()
        assert waited == []
        a.discard()


def test_a_copy_between_arrays_waits_for_what_libraries_have_queued(
    pool: str, libraries: Libraries, waited: list[Any]
) -> None:
    with gpushm.create("a", 4, pool=pool) as a, gpushm.create("b", 4, pool=pool) as b:
        libraries.torch(0x70)
        a.copy_to_device(b)
        assert (0x70 in waited) == (pool != "host")
        a.discard()
        b.discard()


def calls(name: bytes) -> int:
    try:
        return int(ctypes.CDLL("libcuda.so.1").fakecuda_calls(name))
    except (OSError, AttributeError):
        pytest.skip("calls are counted by the fake driver")


@pytest.mark.parametrize("state", ["sealed", "shared"])
def test_publish_waits_for_the_gpu_of_the_memory(
    pool: str, gpu: int, state: str, libraries: Libraries
) -> None:
    """For all streams of it, of any library."""
    context = ctypes.c_void_p()
    cuda = ctypes.CDLL("libcuda.so.1") if calls(b"cuInit") else None
    if pool == "host" or cuda is None:
        return
    with gpushm.create("a", 4, pool=pool) as a:
        assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), gpu) == 0  # As a library does that starts.
        before = calls(b"cuCtxSynchronize")
        a.publish(state)
        assert calls(b"cuCtxSynchronize") > before
        cuda.cuDevicePrimaryCtxRelease_v2(gpu)
        a.unlink()


def test_publish_waits_for_current_streams_of_another_gpu(
    pool: str, libraries: Libraries, waited: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    libraries.torch(0x70)
    libraries.cupy(0)
    with gpushm.create("a", 4, pool=pool) as a, gpushm.create("b", 4, pool=pool) as b:
        monkeypatch.setattr("gpushm._core._current_device", lambda: 1)
        a.publish()
        assert waited == ([] if pool == "host" else [0x70, 0])
        del waited[:]
        # Without a context there is no default stream to wait for, and none is made.
        monkeypatch.setattr("gpushm._core._current_device", lambda: None)
        b.publish()
        assert waited == []
        a.unlink()
        b.unlink()


def test_publish_waits_for_copies_to_registered_memory(
    host_pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waited: list[str] = []
    monkeypatch.setattr("gpushm._driver.synchronize_all", lambda: waited.append("all"))
    monkeypatch.setattr("gpushm._core._pin", lambda *a: None)
    with gpushm.create("a", 4, pool=host_pool) as a, gpushm.create("b", 4, pool=host_pool) as b:
        with gpushm.numba.pinned(a):
            b.publish()
            assert waited == []
            a.publish("shared")
            assert waited == ["all"]
        assert gpushm._libraries.registered == []
        b.unlink()
        a.unlink()


def test_a_close_while_a_call_waits_for_its_gpu_is_an_error(
    pool: str, libraries: Libraries, monkeypatch: pytest.MonkeyPatch
) -> None:
    if pool == "host":
        return
    libraries.torch(0x70)
    a = gpushm.create("a", 4, pool=pool)
    a.discard()
    monkeypatch.setattr("gpushm._core._current_device", lambda: 0)
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: a.close())
    with pytest.raises(ValueError, match="closed"):
        a.publish()
    b = gpushm.create("b", 4, pool=pool)
    b.discard()
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: b.close())
    with pytest.raises(ValueError, match="closed"):
        b.copy_to_host()
