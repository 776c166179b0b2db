# SPDX-License-Identifier: MIT
"""CUDA streams with Numba's names: Numba's own where it is installed, else handles of the driver's."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from .. import _driver


class Stream:
    """A CUDA stream, which every stream= takes: Numba's Stream, where there is no Numba."""

    __module__ = "gpushm.numba"
    __slots__ = {"__weakref__": None, "external": "Whether another library made it.", "handle": "The CUstream: an int."}

    def __init__(self, handle: int, finalizer: Callable[[], object] | None = None, external: bool = False) -> None:
        """stream() and the other functions make one. finalizer: called at the object's end."""
        self.handle: int = handle
        self.external: bool = external
        if finalizer:
            weakref.finalize(self, finalizer).atexit = False  # The end of the process is the stream's, too.

    def synchronize(self) -> None:
        """Waits for all work that is queued on the stream."""
        _driver.synchronize(self.handle)

    def auto_synchronize(self) -> AbstractContextManager[Stream]:
        """A section whose end is synchronize(), without an exception or with one."""
        return _driver.auto_synchronize(self)

    def __int__(self) -> int:
        return self.handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle

    def __repr__(self) -> str:
        return f"<gpushm.numba.Stream {self.handle:#x}>"


def _numbas(function: str, *given: int) -> Any:
    """What that function of numba.cuda returns; None: Numba is not installed."""
    try:
        from numba import cuda  # type: ignore[import-not-found,import-untyped,unused-ignore]
    except ImportError:
        return None
    return getattr(cuda, function)(*given)


def stream() -> Any:
    """A new CUDA stream of the GPU that the thread works on. It ends with the object."""
    numbas = _numbas("stream")
    if numbas:
        return numbas
    made, context, device = ctypes.c_void_p(), ctypes.c_void_p(), _driver.current_device()
    _driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    with _driver.context(device):
        _driver.call("cuStreamCreate", ctypes.byref(made), 0)

    def end() -> None:
        _driver.call("cuStreamDestroy_v2", made)
        _driver.call("cuDevicePrimaryCtxRelease_v2", device)

    return Stream(made.value or 0, end)


def default_stream() -> Any:
    """The default CUDA stream, which is the legacy one, as Numba's."""
    return _numbas("default_stream") or Stream(0)


def legacy_default_stream() -> Any:
    """The legacy default CUDA stream, for which all streams wait that do not say otherwise."""
    return _numbas("legacy_default_stream") or Stream(1)


def per_thread_default_stream() -> Any:
    """The CUDA stream that is each thread's own."""
    return _numbas("per_thread_default_stream") or Stream(2)


def external_stream(ptr: int) -> Any:
    """The CUDA stream of another library: ptr is its CUstream. The library ends it."""
    return _numbas("external_stream", ptr) or Stream(ptr, external=True)
