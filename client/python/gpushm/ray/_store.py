# SPDX-License-Identifier: MIT
"""Where a process puts the tensors that it gives to others.

Tensors that lie in a buffer already are passed on as they are: those made in empty(), in gpushm.torch.memory(), those of
another object, of an attached module. Others are copied once. On a GPU that is a new sealed buffer. On the host fresh
pages cost several times what the copy costs, so the process keeps its buffers, mapped, and puts one object after the
other into them: they are published "shared", to be written by their maker alone, and only when no process reads them
any more.
"""

from __future__ import annotations

import math
import os
import sys
import threading
import time
import uuid
import weakref
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from gpushm import _copy, _core, _models

ALIGN = 256
KEEP = 10.0  # seconds for which a buffer waits for the next object
BYTES = "bytes"  # the one array of a buffer that is made here


class Piece(NamedTuple):
    """A tensor's place: from an array's first byte, and its strides in bytes if it is not contiguous."""

    array: str
    offset: int
    strides: tuple[int, ...] | None


class Placed(NamedTuple):
    """Tensors in a buffer. slab: that of the buffer, if it is one."""

    buffer: str
    id: int
    pieces: list[Piece]
    slab: Slab | None
    keep: object  # the buffer, open until the holder has it


class Slab:
    """A buffer of this process for one object after the other."""

    def __init__(self, nbytes: int) -> None:
        self.name = f"ray/{uuid.uuid4().hex}"
        self.nbytes = nbytes
        self.buffer = _core.create_many(
            self.name, {BYTES: ((nbytes,), "uint8")}, pool=pool(None), transient=True, mode=mode()
        )
        self.buffer.publish("shared")
        self.loan: weakref.ref[Any] | None = None
        self.since = time.monotonic()
        self.start: int = self.buffer.host_ptr or 0

    def lend(self) -> _core.Array:
        """An array of all bytes, which every view of it keeps alive."""
        made = self.buffer.array((self.nbytes,), "uint8")
        self.loan = weakref.ref(made)
        return made

    def take(self) -> bool:
        """Makes it anew. False: somebody has it open."""
        if self.loan is not None and self.loan() is not None:
            return False
        with suppress(_core.NotFound):  # of a daemon that has lost it
            if _core.stat(self.name).readers:
                return False
            # Who still has the old name does not find the next object under it.
            name = f"ray/{uuid.uuid4().hex}"
            _core.rename(self.name, name)
            self.name = name
            return True
        return False


def mode() -> int:
    """Of new buffers: a relay that runs as another user must be able to read them."""
    return int(os.environ.get("GPUSHM_RAY_MODE", "0600"), 8)


@cache
def pool(gpu: int | None) -> str:
    """The pool for objects of the GPU, or of the host."""
    if gpu is not None:
        return _models.pool_of(gpu)
    found = os.environ.get("GPUSHM_RAY_POOL")
    return found or next((p.name for p in _core.pools() if p.kind == "host" and p.allowed), "host")


class Store:
    """The buffers of this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: list[Slab] = []
        self._lent: list[Slab] = []
        self._given: dict[str, Slab] = {}  # by object

    # ---- slabs ----

    def slab(self, nbytes: int) -> Slab:
        """One of at least that many bytes."""
        nbytes = max(nbytes, 1)
        with self._lock:
            self._free += [s for s in self._lent if s.loan is None or s.loan() is None]
            self._lent = [s for s in self._lent if s not in self._free]
            for found in sorted(self._free, key=lambda s: s.nbytes):
                if nbytes <= found.nbytes <= 2 * nbytes + (1 << 20) and found.take():
                    self._free.remove(found)
                    return found
            step = 1 << max(nbytes.bit_length() - 4, 12)
            nbytes = -(-nbytes // step) * step
            try:
                return Slab(nbytes)
            except _core.PoolFull:
                if not self._free:
                    raise
                self._free.clear()
                return Slab(nbytes)

    def lend(self, nbytes: int) -> _core.Array:
        """Memory for tensors that are to be given away."""
        slab = self.slab(nbytes)
        with self._lock:
            self._lent.append(slab)
            return slab.lend()

    def given(self, key: str, slab: Slab) -> None:
        """The slab is that object now."""
        with self._lock:
            self._given[key] = slab

    def gone(self, key: str) -> None:
        """The object has ended."""
        with self._lock:
            slab = self._given.pop(key, None)
            if slab is None or slab in self._given.values():
                return
            slab.since = time.monotonic()
            if slab not in self._lent:
                self._free.append(slab)
        timer = threading.Timer(KEEP, self._tidy)
        timer.daemon = True
        timer.start()

    def _tidy(self) -> None:
        """Frees what waits for nothing. What others read ends with them."""
        old = time.monotonic() - KEEP
        with self._lock:
            self._free = [s for s in self._free if s.since > old]

    # ---- tensors ----

    def place(self, tensors: Sequence[Any]) -> Placed:
        """The tensors in a buffer that others can open."""
        with suppress(_core.NotFound):
            found = self._in_place(tensors)
            if found is not None:
                return found
        gpu = _gpu_of(tensors[0])
        offsets, nbytes = [], 0
        for tensor in tensors:
            offsets.append(nbytes)
            nbytes += -(-tensor.nbytes // ALIGN) * ALIGN
        pieces = [Piece(BYTES, offset, None) for offset in offsets]
        if gpu is None:
            slab = self.slab(nbytes)
            _fill(slab.buffer, tensors, offsets)
            return Placed(slab.name, slab.buffer.id, pieces, slab, slab)
        name = f"ray/{uuid.uuid4().hex}"
        buffer = _core.create_many(
            name, {BYTES: ((max(nbytes, 1),), "uint8")}, pool=pool(gpu), transient=True, mode=mode(), device=gpu
        )
        try:
            _fill(buffer, tensors, offsets)
            buffer.publish()
        except BaseException:
            buffer.discard()
            raise
        return Placed(name, buffer.id, pieces, None, buffer)

    def _in_place(self, tensors: Sequence[Any]) -> Placed | None:
        first = _address(tensors[0])
        with self._lock:
            slabs = [*self._lent, *self._given.values()]
        for slab in slabs:
            if slab.start <= first < slab.start + slab.nbytes:
                pieces = [_piece(t, {BYTES: (slab.start, slab.nbytes)}) for t in tensors]
                return None if None in pieces else Placed(slab.name, slab.buffer.id, pieces, slab, slab)  # type: ignore[arg-type]
        for buffer in _core._opened():
            start = buffer.device_ptr or buffer.host_ptr or 0
            if start <= first < start + buffer.nbytes and (buffer.access != "c"):
                return self._in_buffer(buffer, start, tensors)
        return None

    def _in_buffer(self, buffer: _core.Buffer, start: int, tensors: Sequence[Any]) -> Placed | None:
        whole = (start, buffer.nbytes)
        if any(_piece(t, {BYTES: whole}) is None for t in tensors):
            return None
        if buffer.state == "filling":
            if _in_section(buffer):
                return None
            if not len(buffer):
                buffer.describe({BYTES: ((buffer.nbytes,), "uint8", None, 0)})
            buffer.publish()
        if BYTES in buffer:
            arrays = {BYTES: whole}
        else:
            arrays = {n: (start + a.offset, a.nbytes) for n, a in buffer.items() if a.is_c_contiguous()}
        pieces = [_piece(t, arrays) for t in tensors]
        if None in pieces or _core.stat(buffer.name).id != buffer.id:
            return None
        return Placed(buffer.name, buffer.id, pieces, None, buffer)  # type: ignore[arg-type]


def empty(shape: int | tuple[int, ...], dtype: Any) -> Any:
    """As gpushm.ray.empty()."""
    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    if hasattr(dtype, "is_floating_point"):  # of torch
        from gpushm.torch._tensors import tensor_of

        nbytes = dtype.itemsize * math.prod(shape)
        return tensor_of(store.lend(nbytes))[:nbytes].view(dtype).view(shape)
    import numpy

    nbytes = numpy.dtype(dtype).itemsize * math.prod(shape)
    return numpy.ndarray(shape, dtype, numpy.asarray(store.lend(nbytes)))


def _fill(buffer: _core.Buffer, tensors: Sequence[Any], offsets: list[int]) -> None:
    """Copies them, behind what the libraries' current streams have."""
    todo = [(t, at) for t, at in zip(tensors, offsets, strict=True) if t.nbytes]
    _copy.fill_many(
        (f"{at}", buffer.array(tuple(t.shape), t.dtype, offset=at), t.detach() if hasattr(t, "detach") else t)
        for t, at in todo
    )


def _in_section(buffer: _core.Buffer) -> bool:
    """Whether PyTorch still allocates in it: gpushm.torch.memory() publishes at its section's end, at the earliest."""
    memory = sys.modules.get("gpushm.torch._memory")
    section = memory and getattr(memory._thread, "memory", None)
    return bool(section) and section._space.buffer is buffer


def _gpu_of(tensor: Any) -> int | None:
    device = getattr(tensor, "device", None)
    if getattr(device, "type", "cpu") == "cpu":
        return None
    return int(device.index)


def _address(tensor: Any) -> int:
    if hasattr(tensor, "data_ptr"):
        return int(tensor.data_ptr())
    return int(tensor.__array_interface__["data"][0])


def _piece(tensor: Any, arrays: dict[str, tuple[int, int]]) -> Piece | None:
    """Its place in one of the arrays; None: it is not in any."""
    at = _address(tensor)
    size, strides = _strides(tensor)
    if any(s < 0 for s in strides):
        return None
    last = at + sum((n - 1) * s for n, s in zip(tensor.shape, strides, strict=True)) + size if tensor.nbytes else at
    for name, (start, nbytes) in arrays.items():
        if start <= at and last <= start + nbytes:
            return Piece(name, at - start, None if _is_contiguous(tensor) else strides)
    return None


def _strides(tensor: Any) -> tuple[int, tuple[int, ...]]:
    if hasattr(tensor, "data_ptr"):
        size = tensor.element_size()
        return size, tuple(size * s for s in tensor.stride())
    return tensor.itemsize, tuple(tensor.strides)


def _is_contiguous(tensor: Any) -> bool:
    if hasattr(tensor, "data_ptr"):
        return bool(tensor.is_contiguous())
    return bool(tensor.flags.c_contiguous)


store = Store()
