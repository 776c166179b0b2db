# SPDX-License-Identifier: MIT
"""The GPU: driver calls that Python makes itself (copies of other libraries' memory), sections that wait.

The calls use the calling thread's current context, or a device's primary context where it has none or one of another
device, and leave the thread's context as it was. libcuda is loaded by the first call; libgpushm's own driver table is
not used.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from . import _core

_u64, _size, _int = ctypes.c_uint64, ctypes.c_size_t, ctypes.c_int
_DEVICE_ORDINAL = 9  # CU_POINTER_ATTRIBUTE_*
_OUT_OF_MEMORY = 2  # CUresult

# The types of the arguments. Pointers are c_void_p, so that None is NULL.
_CALLS = {
    "cuInit": (ctypes.c_uint,),
    "cuCtxGetDevice": (ctypes.c_void_p,),
    "cuCtxPushCurrent_v2": (ctypes.c_void_p,),
    "cuCtxPopCurrent_v2": (ctypes.c_void_p,),
    "cuDevicePrimaryCtxRetain": (ctypes.c_void_p, _int),
    "cuDevicePrimaryCtxRelease_v2": (_int,),
    "cuMemcpyAsync": (_u64, _u64, _size, ctypes.c_void_p),
    "cuPointerGetAttribute": (ctypes.c_void_p, ctypes.c_int, _u64),
    "cuCtxSynchronize": (),
    "cuStreamCreate": (ctypes.c_void_p, ctypes.c_uint),
    "cuStreamDestroy_v2": (ctypes.c_void_p,),
    "cuStreamSynchronize": (ctypes.c_void_p,),
}

_started_in: int | None = None


@cache
def _library() -> ctypes.CDLL:
    try:
        found = ctypes.CDLL("libcuda.so.1")
    except OSError as e:
        raise _core.DeviceFailed(errno.ENODEV, f"no NVIDIA driver here: {e}") from None
    for name, arguments in _CALLS.items():
        getattr(found, name).argtypes = arguments
    return found


def call(name: str, *arguments: object) -> None:
    """Calls the driver. Raises DriverError or OutOfMemory, with the driver's name of the error."""
    _start()
    _check(name, getattr(_library(), name)(*arguments))


def _start() -> None:
    global _started_in
    if _started_in == os.getpid():
        return
    if _started_in is not None:
        raise _core.ForkError(
            errno.ECHILD, "CUDA was started before fork() and can't be used in the child: use spawn or forkserver"
        )
    _check("cuInit", _library().cuInit(0))
    _started_in = os.getpid()


def _check(name: str, result: int) -> None:
    if result == 0:
        return
    word = ctypes.c_char_p()
    _library().cuGetErrorName(result, ctypes.byref(word))
    text = f"{name}: {word.value.decode() if word.value else result}"
    if result == _OUT_OF_MEMORY:
        raise _core.OutOfMemory(errno.ENOMEM, text)
    if name == "cuInit":
        raise _core.DeviceFailed(errno.ENODEV, text)
    raise _core.DriverError(errno.EIO, text)


@contextmanager
def context(device: int | None) -> Iterator[None]:
    """A section in which the thread has a context of that device: its current one if it is, else the primary one.

    None, or -1: of any device.
    """
    _start()
    current = _int()
    # An error: the thread has none.
    if _library().cuCtxGetDevice(ctypes.byref(current)) == 0 and device in (None, -1, current.value):
        yield
        return
    made = ctypes.c_void_p()
    device = max(device or 0, 0)
    call("cuDevicePrimaryCtxRetain", ctypes.byref(made), device)
    try:
        call("cuCtxPushCurrent_v2", made)
        try:
            yield
        finally:
            call("cuCtxPopCurrent_v2", ctypes.byref(made))
    finally:
        call("cuDevicePrimaryCtxRelease_v2", device)


def current_device() -> int:
    """The ordinal of the GPU that the thread works on; 0 where it has no context."""
    found = _int()
    with context(None):
        call("cuCtxGetDevice", ctypes.byref(found))
    return found.value


def copy(to: int, source: int, nbytes: int, stream: int | None, device: int | None) -> None:
    """Copies bytes between addresses that the GPU knows; stream None: done on return."""
    with context(device):
        call("cuMemcpyAsync", to, source, nbytes, stream)
        if stream is None:
            call("cuStreamSynchronize", None)


def device_of(address: int) -> int:
    """The ordinal of the GPU that has the memory."""
    found = _int()
    call("cuPointerGetAttribute", ctypes.byref(found), _DEVICE_ORDINAL, address)
    return found.value


def synchronize(stream: int | None, device: int | None = None) -> None:
    """Waits for a stream; None is the legacy default stream."""
    with context(device):
        call("cuStreamSynchronize", stream)


def synchronize_all(device: int | None = None) -> None:
    """Waits for all streams of a context."""
    with context(device):
        call("cuCtxSynchronize")


# ---- sections ----


@contextmanager
def auto_synchronize(stream: Any = None) -> Iterator[Any]:
    """A section whose end waits for all work that was queued on the stream: Numba's stream.auto_synchronize(), for a
    stream of any library.

    Yields the stream. Also waits when the section ends with an exception, because the GPU may still use memory.
    stream: an int, an object with __cuda_stream__, or a stream of CuPy, PyTorch or Numba; None is the legacy default
    stream.
    """
    handle = _core._stream(stream)
    try:
        yield stream
    finally:
        synchronize(handle)


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """A section in which closing a buffer on a GPU neither waits for the GPU nor asks the daemon: Numba's
    defer_cleanup().

    Sections nest, and hold for the whole process. The deferred closes are done, oldest first, by flush_cleanup(), by
    the next close outside of sections, or when memory is short. Buffers of host pools are always closed at once.
    """
    _core._defer_cleanup()
    try:
        yield
    finally:
        _core._resume_cleanup()
