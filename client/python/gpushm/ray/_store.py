# SPDX-License-Identifier: MIT
"""Where a process puts the tensors that it gives to others.

Those that lie in a buffer already stay there: those of empty(), of gpushm.torch.memory(), of another object, of an
attached module. Others are copied once. On a GPU and for weights() that is a new sealed buffer. On the host fresh pages
cost several times what the copy costs. So a process keeps its buffers there, mapped, as slabs: they are published
"shared", and it puts the next object into one when nobody reads the last one any more.
"""

from __future__ import annotations

import ctypes
import math
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from .. import _copy, _core, _models

KEEP = 10.0  # seconds for which a slab waits for the next object
BLOCK = 8 << 20  # bytes that a thread copies at a time
BYTES = "bytes"  # the one array of a buffer that is made here


class Placed(NamedTuple):
    """Tensors in a buffer: the array and the offset of each. lease: keeps the buffer open."""

    buffer: str
    pieces: list[tuple[str, int]]
    lease: Slab | _core.Buffer


class Slab:
    """A buffer of this process for one object after the other."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.buffer = created(uuid.uuid4().hex, nbytes, None)
        self.buffer.publish("shared")
        self.name = self.buffer.name
        self.start: int = self.buffer.host_ptr or 0
        self.objects: set[str] = set()
        self.loan: weakref.ref[Any] | None = None  # an array of all bytes, which its views keep alive
        self.since = time.monotonic()

    def is_used(self) -> bool:
        return bool(self.objects) or (self.loan is not None and self.loan() is not None)

    def take(self, nbytes: int) -> bool:
        """Makes it anew for that many bytes. False: it is too small or too large, or somebody has it open."""
        if self.is_used() or not nbytes <= self.nbytes <= 2 * nbytes + (1 << 20):
            return False
        with suppress(_core.NotFound):  # of a daemon that has lost it
            if not _core.stat(self.name).readers:
                # Who still has the old name does not find the next object under it.
                name = f"ray/{uuid.uuid4().hex}"
                _core.rename(self.name, name)
                self.name = name
                return True
        return False


def mode() -> int:
    """Of new buffers."""
    return int(os.environ.get("GPUSHM_RAY_MODE", "0600"), 8)


@cache
def pool(gpu: int | None) -> str:
    """That for objects of the GPU, or of the host."""
    if gpu is not None:
        return _models.pool_of(gpu)
    found = os.environ.get("GPUSHM_RAY_POOL")
    return found or next((p.name for p in _core.pools() if p.kind == "host" and p.allowed), "host")


def created(key: str, nbytes: int, gpu: int | None) -> _core.Buffer:
    """A new buffer."""
    arrays = {BYTES: ((max(nbytes, 1),), "uint8")}
    return _core.create_many(f"ray/{key}", arrays, pool=pool(gpu), transient=True, mode=mode(), device=gpu)


class Store:
    """The slabs of this process."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._slabs: list[Slab] = []

    def _slab(self, nbytes: int) -> Slab:
        for found in sorted(self._slabs, key=lambda s: s.nbytes):
            if found.take(nbytes):
                return found
        step = 1 << max(nbytes.bit_length() - 4, 12)
        nbytes = max(-(-nbytes // step), 1) * step
        try:
            made = Slab(nbytes)
        except _core.PoolFull:
            self._slabs = [s for s in self._slabs if s.is_used()]
            made = Slab(nbytes)
        self._slabs.append(made)
        return made

    def lend(self, nbytes: int) -> Any:
        """Memory for tensors that are to be given away: an Array of at least that many bytes."""
        with self._lock:
            slab = self._slab(nbytes)
            made = slab.buffer.array((slab.nbytes,), "uint8")
            slab.loan = weakref.ref(made)
            return made

    def gone(self, key: str) -> None:
        """The object has ended. Its slab waits for another one."""
        with self._lock:
            for slab in self._slabs:
                if key in slab.objects:
                    slab.objects.discard(key)
                    slab.since = time.monotonic()
        timer = threading.Timer(KEEP, self._tidy)
        timer.daemon = True
        timer.start()

    def _tidy(self) -> None:
        with self._lock:
            self._slabs = [s for s in self._slabs if s.is_used() or s.since > time.monotonic() - KEEP]

    def place(self, key: str, tensors: Sequence[Any], sealed: bool = False) -> Placed:
        """The tensors of that object in a buffer that others can open. sealed: in no slab."""
        with self._lock, suppress(_core.NotFound):
            if found := self._in_place(key, tensors, sealed):
                return found
        ends = [0]
        for tensor in tensors:
            ends.append(ends[-1] + -(-tensor.nbytes // 256) * 256)
        pieces = [(BYTES, offset) for offset in ends[:-1]]
        device = getattr(tensors[0], "device", None)
        gpu = int(device.index) if device is not None and str(device) != "cpu" else None
        if gpu is None and not sealed:
            with self._lock:
                slab = self._slab(ends[-1])
                slab.objects.add(key)
            try:
                _fill(slab.buffer, tensors, ends)
            except BaseException:
                self.gone(key)
                raise
            return Placed(slab.name, pieces, slab)
        with created(key, ends[-1], gpu) as buffer:
            _fill(buffer, tensors, ends)
            buffer.publish()
            return Placed(buffer.name, pieces, _core.open_many(buffer.name, device=gpu))

    def _in_place(self, key: str, tensors: Sequence[Any], sealed: bool) -> Placed | None:
        first = _address(tensors[0])
        for slab in self._slabs:
            if slab.start <= first < slab.start + slab.nbytes:
                pieces = _pieces(tensors, {BYTES: (slab.start, slab.nbytes)})
                if sealed or pieces is None:
                    return None
                slab.objects.add(key)
                return Placed(slab.name, pieces, slab)
        for buffer in _core._opened():
            start = buffer.device_ptr or buffer.host_ptr or 0
            if start <= first < start + buffer.nbytes and buffer.access != "c":
                return _in_buffer(buffer, start, tensors, sealed)
        return None


def _in_buffer(buffer: _core.Buffer, start: int, tensors: Sequence[Any], sealed: bool) -> Placed | None:
    whole = {BYTES: (start, buffer.nbytes)}
    if _pieces(tensors, whole) is None or _in_section(buffer) or (sealed and buffer.state == "shared"):
        return None
    if buffer.state == "filling":
        if not len(buffer):
            buffer.describe({BYTES: ((buffer.nbytes,), "uint8", None, 0)})
        buffer.publish()
    arrays = {n: (start + a.offset, a.nbytes) for n, a in buffer.items() if a.is_c_contiguous()}
    pieces = _pieces(tensors, arrays)
    if pieces is None or _core.stat(buffer.name).id != buffer.id:
        return None
    return Placed(buffer.name, pieces, buffer)


def _in_section(buffer: _core.Buffer) -> bool:
    """Whether PyTorch still allocates in it, as in a section of gpushm.torch.memory()."""
    memory: Any = sys.modules.get("gpushm.torch._memory")
    section: Any = memory and getattr(memory._thread, "memory", None)
    return bool(section) and section._space.buffer is buffer


def _pieces(tensors: Sequence[Any], arrays: dict[str, tuple[int, int]]) -> list[tuple[str, int]] | None:
    """The places of contiguous tensors in those arrays; None: one is in none of them."""
    made = []
    for tensor in tensors:
        at = _address(tensor)
        fits = (n for n, (start, size) in arrays.items() if start <= at and at + tensor.nbytes <= start + size)
        name = next(fits, None) if _is_contiguous(tensor) else None
        if name is None:
            return None
        made.append((name, at - arrays[name][0]))
    return made


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4, "gpushm.ray")


def _fill(buffer: _core.Buffer, tensors: Sequence[Any], offsets: list[int]) -> None:
    """Copies them, behind what the libraries' current streams have. On the host by several threads, in blocks."""
    todo = [(t, at) for t, at in zip(tensors, offsets, strict=False) if t.nbytes]
    start = buffer.host_ptr
    blocks = []
    if start and buffer.kind == "host":
        for t, at in (one for one in todo if one[0].nbytes > BLOCK and _is_contiguous(one[0])):
            blocks += [(start + at + i, _address(t) + i, min(BLOCK, t.nbytes - i)) for i in range(0, t.nbytes, BLOCK)]
        todo = [one for one in todo if one[0].nbytes <= BLOCK or not _is_contiguous(one[0])]
    for copied in [_threads().submit(ctypes.memmove, *block) for block in blocks]:
        copied.result()
    _copy.fill_many((f"{at}", buffer.array(tuple(t.shape), t.dtype, offset=at), t) for t, at in todo)


def _is_contiguous(tensor: Any) -> bool:
    return bool(tensor.is_contiguous() if hasattr(tensor, "data_ptr") else tensor.flags.c_contiguous)


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0])


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """As gpushm.ray.empty()."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if hasattr(dtype, "is_floating_point"):  # of torch
        from ..torch._tensors import tensor_of

        nbytes = dtype.itemsize * math.prod(shape)
        return tensor_of(store.lend(nbytes))[:nbytes].view(dtype).view(shape)
    import numpy

    nbytes = numpy.dtype(dtype).itemsize * math.prod(shape)
    return numpy.ndarray(shape, dtype, numpy.asarray(store.lend(nbytes)))


store = Store()
