# SPDX-License-Identifier: MIT
"""What other libraries do not notice of an Array, and what is said about it: that it is read-only, and on which GPU."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import gpushm
import numpy as np
import pytest


def stand_in(module: str) -> Callable[..., Any]:
    """A from_dlpack() as PyTorch has it, in that module."""
    scope: dict[str, Any] = {"__name__": module}
    exec("def from_dlpack(x, **words):\n    return x.__dlpack__(**words)\n", scope)
    return scope["from_dlpack"]


torch_from_dlpack = stand_in("torch.utils.dlpack")


@pytest.fixture(autouse=True)
def said_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test begins as a process that has said nothing."""
    monkeypatch.setattr("gpushm._libraries._said", set())


@pytest.fixture
def sealed(pool: str) -> Iterator[gpushm.Array]:
    """A read-only array."""
    with gpushm.create("a", (4, 6), "float32", pool=pool) as a:
        a[...] = np.arange(24).reshape(4, 6)
        a.publish()
        yield a
    gpushm.unlink("a")


@contextmanager
def warned() -> Iterator[list[str]]:
    """The texts of gpushm's warnings in this section; each must be said of this file."""
    texts: list[str] = []
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        yield texts
    for w in found:
        if issubclass(w.category, gpushm.errors.ReadOnlyWarning | gpushm.errors.DeviceWarning):
            assert w.filename == __file__
            texts.append(str(w.message))


# ---- read-only memory ----

FATES = {
    "host": ("SIGSEGV", '"c"'), "pinned": ("SIGSEGV", "copy"), "vmm": ("illegal", "copy"), "mempool": ("all", "copy")
}


def test_torch_is_warned_of_read_only_memory_once(sealed: gpushm.Array) -> None:
    with warned() as texts:
        torch_from_dlpack(sealed, max_version=(1, 0))
        torch_from_dlpack(sealed[1:], max_version=(1, 0))
    assert len(texts) == 1 and "PyTorch" in texts[0] and '"a"' in texts[0]
    assert all(word in texts[0] for word in FATES[sealed.kind])


def test_a_warning_about_read_only_memory_can_be_an_error(sealed: gpushm.Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", gpushm.errors.ReadOnlyWarning)
        for _ in range(2):
            with pytest.raises(gpushm.errors.ReadOnlyWarning):
                torch_from_dlpack(sealed, max_version=(1, 0))
    sealed.close()  # No tensor was made.


def test_an_array_closed_by_a_warning_filter_is_refused(sealed: gpushm.Array) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = lambda *_: sealed.close()
        with pytest.raises(ValueError, match="closed"):
            torch_from_dlpack(sealed, max_version=(1, 0))


def test_a_consumer_that_heeds_the_flag_gets_no_warning(sealed: gpushm.Array) -> None:
    with warned() as texts:
        sealed.__dlpack__(max_version=(1, 0))
        stand_in("jax._src.dlpack")(sealed, max_version=(1, 0))
        torch_from_dlpack(sealed, max_version=(1, 0), dl_device=(1, 0), copy=True)
        if sealed.host_ptr:
            np.from_dlpack(sealed) if sealed.kind == "host" else None
            sealed.numpy()
    assert texts == []


def test_writable_memory_gives_no_warning(pool: str) -> None:
    with warned() as texts, gpushm.create("a", 4, pool=pool) as a:
        torch_from_dlpack(a, max_version=(1, 0))
        if pool == "host":
            a.publish()
            with gpushm.open("a", "c") as b:
                torch_from_dlpack(b, max_version=(1, 0))
            a.unlink()
    assert texts == []


def test_cupy_is_warned_of_read_only_memory_once(sealed: gpushm.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    words: dict[str, Any] = {"stream": 1, "max_version": (1, 0), "copy": None}
    if sealed.device is None:
        return
    with warned() as texts:
        sealed.__dlpack__(**words)
        monkeypatch.setitem(sys.modules, "cupy", ModuleType("cupy"))
        sealed.__dlpack__(stream=1, max_version=(1, 0))  # As cuda.core asks, which tells its user.
        assert texts == []
        sealed.__dlpack__(**words)
        sealed.__dlpack__(**words)
    assert len(texts) == 1 and "CuPy" in texts[0]


TORCH = """
import warnings
import gpushm, torch
a = gpushm.open("a", {access!r})
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    t = torch.from_dlpack(a)
    torch.from_dlpack(a)
print(sum(w.category is gpushm.errors.ReadOnlyWarning for w in found), t.sum().item(), flush=True)
t += 1
print(t.sum().item())
"""


@pytest.mark.skipif(find_spec("torch") is None, reason="no PyTorch")
def test_torch_is_warned_before_its_write_ends_the_process(host_pool: str, in_child: Callable[..., str]) -> None:
    with gpushm.create("a", 24, "float32", pool=host_pool) as a:
        a[...] = 1
        a.publish()
        assert in_child(TORCH.format(access="c")).split() == ["0", "24.0", "48.0"]
        done = subprocess.run([sys.executable, "-c", TORCH.format(access="r")], capture_output=True, text=True)
        assert done.stdout.split() == ["1", "24.0"] and done.returncode == -11
        assert (a.copy_to_host() == 1).all()
    gpushm.unlink("a")


# ---- GPUs ----

ON_GPU_1 = """
import ctypes, sys, warnings
import gpushm
warnings.simplefilter("always")
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
gpushm.open("host", device="current").close()
gpushm.open("a").close()  # Starts the driver; the thread has no context.
assert cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 1) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0
{code}
cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
cuda.cuDevicePrimaryCtxRelease_v2(1)
"""


@pytest.fixture
def on_gpu_1() -> Iterator[Callable[[str], tuple[str, str]]]:
    """Runs code in a process whose thread works on GPU 1; "a" is a buffer on GPU 0. Returns its output and errors."""
    import ctypes
    import os

    from daemon import Daemon

    try:
        ctypes.CDLL("libcuda.so.1").fakecuda_handed_out()
    except (OSError, AttributeError):
        pytest.skip("needs the fake driver, which can have two GPUs")
    daemon = Daemon(FAKECUDA_DEVICES="2")
    env = os.environ | {"FAKECUDA_DEVICES": "2", "GPUSHM_SOCKET": daemon.socket}

    def run(code: str) -> tuple[str, str]:
        done = subprocess.run(
            [sys.executable, "-c", ON_GPU_1.format(code=code)], capture_output=True, text=True, env=env, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout, done.stderr

    with gpushm.types.Connection(daemon.socket) as c:
        for name, pool in (("a", "gpu0"), ("host", "host")):
            c.create(name, 4, pool=pool).publish("shared")
        # A buffer ends with its creator unless it has a name: both have.
        yield run
        for name in ("a", "host"):
            c.unlink(name)
    daemon.remove()


def test_a_buffer_on_another_gpu_opens_with_one_warning(on_gpu_1: Callable[[str], tuple[str, str]]) -> None:
    out, err = on_gpu_1("""
for _ in range(2):
    with gpushm.open("a") as a:
        print(a.device, a.__dlpack_device__())
""")
    assert out.splitlines() == ["0 (2, 0)"] * 2
    assert err.count("DeviceWarning") == 1 and 'device="current"' in err and "<string>" in err


def test_the_current_gpu_gets_memory_without_a_warning(on_gpu_1: Callable[[str], tuple[str, str]]) -> None:
    out, err = on_gpu_1("""
for device in ("current", 1, 0):
    with gpushm.open("a", device=device) as a:
        print(a.device, a.__dlpack_device__())
with gpushm.open_many("a", device="current") as b:
    print(b[""].__dlpack_device__())
with gpushm.create("b", 4, pool="gpu0", device="current") as b:
    print(b.__dlpack_device__())
with gpushm.create("b", 4, pool="gpu1") as b, gpushm.create("c", 4, pool="gpu0"):
    print(b.__dlpack_device__())
    b.publish("shared")
    with b.handle().open(device="current") as h:
        print(h.__dlpack_device__())
    b.unlink()
""")
    assert out.splitlines() == ["0 (2, 1)", "0 (2, 1)", "0 (2, 0)", "(2, 1)", "(2, 1)", "(2, 1)", "(2, 1)"]
    assert "DeviceWarning" not in err


def test_copies_on_another_gpu_work(on_gpu_1: Callable[[str], tuple[str, str]]) -> None:
    out, _ = on_gpu_1("""
with gpushm.create("b", 8, pool="gpu0", device=0) as a, gpushm.create("c", 8, pool="gpu0", device=0) as b:
    a.copy_from_host(bytes(range(8)))
    a[1:] = a[:-1]
    print(a.tolist())
    b.copy_to_device(a)
    b[2:] = a[:6]
    print(b.tolist())
    b.discard()
    a.discard()
""")
    assert out.splitlines() == ["[0, 0, 1, 2, 3, 4, 5, 6]", "[0, 0, 0, 0, 1, 2, 3, 4]"]


def test_a_new_buffer_on_another_gpu_gives_one_warning(on_gpu_1: Callable[[str], tuple[str, str]]) -> None:
    out, err = on_gpu_1("""
with gpushm.create("b", 4) as b:
    print(b.device)
warnings.simplefilter("error", gpushm.errors.DeviceWarning)
gpushm._libraries._said.clear()
try:
    gpushm.create("c", 4)
except gpushm.errors.DeviceWarning:
    print(len(gpushm.ls("c")))
""")
    assert out.split() == ["0", "0"]
    assert err.count("DeviceWarning") == 1 and "pool=" in err


def test_a_device_word_other_than_current_is_refused(pool: str) -> None:
    for wrong in ("cuda:0", "", "CURRENT"):
        with pytest.raises(ValueError, match="current"):
            gpushm.create("a", 4, pool=pool, device=wrong)
    gpushm.create("a", 4, pool=pool, device="current").close()
