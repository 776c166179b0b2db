# SPDX-License-Identifier: MIT
"""CuPy's arrays in memory of the daemon: an allocator, names, and handles that any process of the user opens.

    cupy.cuda.set_allocator(gpushm.cupy.Allocator())

    array = cupy.arange(1 << 20)
    queue.put(gpushm.cupy.handle(array))          # handle.open() there is an array of CuPy's
    gpushm.cupy.publish(array, "frames/0")        # gpushm.open("frames/0"), in any language

CuPy's own pool keeps freed memory for the next arrays, and takes an Allocator as any other:
cupy.cuda.set_allocator(cupy.cuda.MemoryPool(gpushm.cupy.Allocator()).malloc).
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

try:
    import cupy
except ImportError as e:
    raise ImportError(f"gpushm.cupy needs CuPy (pip install cupy-cuda13x): {e}") from e

from . import _core, _driver, _foreign, _handle
from ._array import Array, Buffer

_ALIGNMENT = 512  # of what CuPy's own allocator returns
_BLOCK = 2 << 20  # what a vmm pool takes for a buffer, at least


class Allocator:
    """For cupy.cuda.set_allocator(): memory of the current GPU, in buffers of the daemon.

    An array of more than 1 MiB has a buffer; smaller ones share buffers of 2 MiB, each of which is freed with its last
    array. pool: a name; None: the GPU's first pool in which the user may create. Errors: as gpushm.create().
    """

    def __init__(self, pool: str | None = None) -> None:
        self._pool = pool
        self._lock = threading.Lock()
        self._blocks: dict[int, tuple[Buffer, int]] = {}  # by device: the one that is filled, and up to where

    def __call__(self, nbytes: int) -> Any:
        """A cupy.cuda.MemoryPointer."""
        device = _driver.current_device()
        taken = -(-max(nbytes, 1) // _ALIGNMENT) * _ALIGNMENT
        buffer, offset = self._part(taken, device) if taken <= _BLOCK // 2 else (self._new(taken, device), 0)
        memory = cupy.cuda.UnownedMemory((buffer.device_ptr or 0) + offset, nbytes, buffer, device)
        return cupy.cuda.MemoryPointer(memory, 0)

    def _part(self, taken: int, device: int) -> tuple[Buffer, int]:
        with self._lock:
            buffer, used = self._blocks.get(device) or (None, _BLOCK)
            if buffer is None or used + taken > _BLOCK:
                buffer, used = self._new(_BLOCK, device), 0
            self._blocks[device] = buffer, used + taken
        return buffer, used

    def _new(self, nbytes: int, device: int) -> Buffer:
        pool = _foreign.pool_for(_core._ON_GPU, self._pool, device=device).name
        return _core.create_many(None, {}, nbytes=nbytes, pool=pool, device=device)


class Handle:
    """Names a CuPy array, for other processes: can be pickled, and keeps no memory."""

    def __init__(self, handle: _handle.Handle[Array]) -> None:
        self._handle = handle

    def open(self) -> Any:
        """A cupy.ndarray of the same memory, on the current GPU, which it keeps. Errors: as gpushm.open()."""
        return cupy.asarray(self._handle.open("r+", device="current"))


def handle(array: Any) -> Handle:
    """The Handle of an array whose memory is an Allocator's, or of a view of one. Keep the array until it is opened.

    TypeError: the memory is not the daemon's.
    """
    return Handle(_foreign.as_array(array).handle())


def publish(array: Any, name: str, *, mode: int = 0o600, replace: bool = False) -> Array:
    """Gives an array a name: gpushm.open(name) has its shape and dtype in any process that the mode allows.

    It is the array's own memory, and nothing is copied, if the array fills its buffer, has no handle and no name yet,
    and the mode is 0o600. Else it is a copy, because its buffer has other arrays, too: write to the Array that is
    returned, which is what others open. The name lasts as long as the array, that Array, or another process's use of
    it. replace: another buffer of the name loses it. Errors: TypeError (the memory is not the daemon's), Exists.
    """
    view = _foreign.as_array(array)
    alone = view.offset == 0 and view.buffer.nbytes - view.nbytes < _ALIGNMENT
    named = _foreign.publish_view(view, name, mode, replace, alone)
    weakref.finalize(array, id, named).atexit = False
    return named
