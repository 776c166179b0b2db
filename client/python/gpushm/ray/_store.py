# SPDX-License-Identifier: MIT
"""Where a process puts the tensors that it gives to others, and what it has open of theirs.

Those that lie in a buffer already stay there: those of empty(), of gpushm.torch.memory(), of another object, of an
attached module. Others are copied once. On a GPU and for weights() that is a new sealed buffer. On the host fresh pages
cost several times what the copy costs. So a process keeps its buffers there, mapped, as slabs: they are published
"shared", and it puts the next object into one when nobody reads the last one any more, which the holder knows. Readers
keep a slab mapped, too: the next object in it has pages that all of them have had before.
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
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from typing import Any, NamedTuple

from .. import _copy, _core, _handle, _models
from .._array import Buffer

KEEP = 10.0  # seconds for which a slab waits for the next object
PATIENCE = 5.0  # the same for room in the pool
BLOCK = 8 << 20  # bytes that a thread copies at a time
BYTES = "bytes"  # the one array of a buffer that is made here
LOAN = "loan"  # in place of an object
_libc = ctypes.CDLL(None)
_MADV_POPULATE_READ = 22  # asm-generic/mman-common.h, Linux 5.14; before it is an error and does nothing


class Placed(NamedTuple):
    """Tensors in a buffer: the array and the offset of each."""

    buffer: Buffer
    pieces: list[tuple[str, int]]


class Slab:
    """A buffer of this process for one object after the other."""

    def __init__(self, nbytes: int) -> None:
        self.nbytes = nbytes
        self.buffer = created(uuid.uuid4().hex, nbytes, None)
        self.buffer.publish("shared")
        self.objects: set[str] = set()  # with LOAN, while somebody writes to it
        self.since = time.monotonic()


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


def is_offered(buffer: Buffer) -> bool:
    """Whether a relay has it for other nodes: sealed, and under a name that no program gives to another buffer."""
    return buffer.state == "sealed" and buffer.name.startswith("ray/")


def created(key: str, nbytes: int, gpu: int | None) -> Buffer:
    """A new buffer."""
    arrays = {BYTES: ((max(nbytes, 1),), "uint8")}
    return _core.create_many(f"ray/{key}", arrays, pool=pool(gpu), transient=True, mode=mode(), device=gpu)


class Store:
    """The slabs of this process, and what it reads."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._slabs: list[Slab] = []
        self._read: dict[str, Any] = {}  # all bytes of an object, until that ends; None: it is being opened
        self.on_full: Callable[[], None] = lambda: None  # asks other processes for what waits for an object
        self._idle: dict[int, tuple[float, Buffer]] = {}  # slabs of others by id, and since when nothing is read

    def _slab(self, nbytes: int, key: str) -> Slab:
        """One in which that object is from now on. Where the pool is full, processes let go of what waits for one."""
        end = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                try:
                    made = self._free_slab(nbytes)
                    made.objects.add(key)
                    return made
                except _core.PoolFull:
                    if time.monotonic() > end:
                        raise
                    self.tidy(0)
            self.on_full()
            time.sleep(0.02)

    def _free_slab(self, nbytes: int) -> Slab:
        for found in sorted(self._slabs, key=lambda s: s.nbytes):
            if nbytes <= found.nbytes <= 2 * nbytes + (1 << 20) and not found.objects:
                return found
        step = 1 << max(nbytes.bit_length() - 4, 12)
        self._slabs.append(Slab(max(-(-nbytes // step), 1) * step))
        return self._slabs[-1]

    def lend(self, nbytes: int) -> Any:
        """Memory for tensors that are to be given away: an Array of at least that many bytes, which its views keep."""
        slab = self._slab(nbytes, LOAN)
        made = slab.buffer.array((slab.nbytes,), "uint8")
        weakref.finalize(made, slab.objects.discard, LOAN).atexit = False
        return made

    def on_word(self, verb: str, key: str) -> None:
        """What the holder says."""
        with self._lock:
            if verb in ("free", "lost"):
                for slab in [s for s in self._slabs if key in s.objects]:
                    slab.objects.discard(key)
                    slab.since = time.monotonic()
                    if verb == "lost":
                        self._slabs.remove(slab)
            elif verb == "ended":
                whole = self._read.pop(key, None)
                if whole is not None and whole.buffer.state == "shared":
                    self._idle[whole.buffer.id] = time.monotonic(), whole.buffer
            elif verb == "left":
                self._read.clear()
                self._slabs = [s for s in self._slabs if not s.objects]
            else:
                self.tidy(KEEP if verb == "tick" else 0)

    def tidy(self, keep: float) -> None:
        """Frees what has waited for an object for that many seconds."""
        with self._lock:
            since = time.monotonic() - keep
            self._slabs = [s for s in self._slabs if s.objects or s.since > since]
            self._idle = {id: one for id, one in self._idle.items() if one[0] > since}

    def read(self, link: Any, key: str, access: Any, device: Any) -> Any:
        """All bytes of the object, an Array, open until that has ended. NotFound: the holder does not have it."""
        if access == "r":
            with self._lock:
                if (found := self._read.setdefault(key, None)) is not None:
                    return found
        name = ""
        try:
            name, number = link.ask("use", key).split()
            id = int(number)
            with self._lock:
                _, buffer = self._idle.pop(id, (0, None)) if access == "r" else (0, None)
            buffer = buffer or _opened_near(link, key, name, id, access, device)
            whole = buffer.array((buffer.nbytes,), "uint8")
        except BaseException:
            with self._lock:
                self._read.pop(key, None)
            if name:
                link.say("done", key)
            raise
        weakref.finalize(whole, link.say, "done", key).atexit = False
        with self._lock:
            if key in self._read and access == "r":
                self._read[key] = whole
        return whole

    def place(
        self, key: str, tensors: Sequence[Any], keep: Callable[[Buffer], str], sealed: bool
    ) -> tuple[Placed, str]:
        """Places the tensors of that object in a buffer that others can open. Calls keep() with it, while it copies
        into a slab, else afterwards; returns what keep() returned, too. sealed: uses no slab.
        """
        found = None
        with self._lock, suppress(_core.NotFound):
            found = self._in_place(key, tensors, sealed)
        if found:
            try:
                return found, keep(found.buffer)
            except _core.NotFound:  # another buffer has its name by now, or none: they are copied
                self.on_word("lost", key)
        ends = [0]
        for tensor in tensors:
            ends.append(ends[-1] + -(-tensor.nbytes // 256) * 256)
        pieces = [(BYTES, offset) for offset in ends[:-1]]
        device = getattr(tensors[0], "device", None)
        gpu = int(device.index) if device is not None and str(device) != "cpu" else None
        if gpu is None and not sealed:
            slab = self._slab(ends[-1], key)
            kept = _threads().submit(keep, slab.buffer)
            try:
                _fill(slab.buffer, tensors, ends)
            finally:
                said = kept.result()
            return Placed(slab.buffer, pieces), said
        with created(key, ends[-1], gpu) as buffer:
            _fill(buffer, tensors, ends)
            buffer.publish()
            return Placed(_core.open_many(buffer.name, device=gpu), pieces), keep(buffer)

    def _in_place(self, key: str, tensors: Sequence[Any], sealed: bool) -> Placed | None:
        first = _address(tensors[0])
        for buffer in _core._opened():
            start = buffer.device_ptr or buffer.host_ptr or 0
            if start <= first < start + buffer.nbytes and buffer.access != "c":
                spans = [(_address(t), t.nbytes) for t in tensors if _is_contiguous(t)]
                placed = _in_buffer(buffer, start, spans, sealed) if len(spans) == len(tensors) else None
                for slab in self._slabs:
                    if placed and slab.buffer is buffer:
                        slab.objects.add(key)
                return placed
        return None


def _opened_near(link: Any, key: str, name: str, id: int, access: Any, device: Any) -> Any:
    """By peer access where this process sees the buffer's GPU. Ray shows each actor its own alone: then a copy on that,
    one for all its readers.
    """
    try:
        return _handle.check_id(_opened(name, access, device), name, id)
    except _core.DeviceFailed as unseen:
        if device is None:
            raise
        try:
            near = pool(_core._current_device() or 0)
        except _core.NotFound:
            raise unseen from None
        return _opened(link.ask("seal", key, near), access, device)


def _opened(name: str, access: Any, device: Any) -> Buffer:
    made = _core.open_many(name, access, device=device)
    if made.host_ptr and made.kind == "host":  # a fault of each page takes twice as long
        _libc.madvise(ctypes.c_void_p(made.host_ptr), ctypes.c_size_t(made.nbytes), _MADV_POPULATE_READ)
    return made


def _in_buffer(buffer: Buffer, start: int, spans: list[tuple[int, int]], sealed: bool) -> Placed | None:
    whole = {BYTES: (start, buffer.nbytes)}
    if _pieces(spans, whole) is None or _in_section(buffer) or (sealed and buffer.state == "shared"):
        return None
    if buffer.state == "filling":
        if not len(buffer):
            buffer.describe({BYTES: ((buffer.nbytes,), "uint8", None, 0)})
        buffer.publish()
    arrays = {n: (start + a.offset, a.nbytes) for n, a in buffer.items() if a.is_c_contiguous()}
    pieces = _pieces(spans, arrays)
    return None if pieces is None else Placed(buffer, pieces)


def _in_section(buffer: Buffer) -> bool:
    """Whether PyTorch still allocates in it, as in a section of gpushm.torch.memory()."""
    memory: Any = sys.modules.get("gpushm.torch._memory")
    section: Any = memory and getattr(memory._thread, "memory", None)
    return bool(section) and section._space.buffer is buffer


def _pieces(spans: list[tuple[int, int]], arrays: dict[str, tuple[int, int]]) -> list[tuple[str, int]] | None:
    """The places of memory, addresses and bytes, in those arrays; None: some of it is in none of them."""
    made = []
    for at, nbytes in spans:
        name = next((n for n, (start, size) in arrays.items() if start <= at and at + nbytes <= start + size), None)
        if name is None:
            return None
        made.append((name, at - arrays[name][0]))
    return made


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(8, "gpushm.ray")


def _fill(buffer: Buffer, tensors: Sequence[Any], offsets: list[int]) -> None:
    """Copies them, behind what the libraries' current streams have. On the host by several threads, in blocks."""
    todo = [(t, at) for t, at in zip(tensors, offsets, strict=False) if t.nbytes]
    start = buffer.host_ptr
    if start and buffer.kind == "host":
        large = [one for one in todo if one[0].nbytes > BLOCK and _is_contiguous(one[0])]
        copy([(start + at, _address(t), t.nbytes) for t, at in large])
        todo = [one for one in todo if one[0].nbytes <= BLOCK or not _is_contiguous(one[0])]
    _copy.fill_many((f"{at}", buffer.array(tuple(t.shape), t.dtype, offset=at), t) for t, at in todo)


def copy(pieces: Sequence[tuple[int, int, int]]) -> None:
    """Copies memory of the host: to, from, bytes."""
    blocks = [(to + i, at + i, min(BLOCK, n - i)) for to, at, n in pieces for i in range(0, n, BLOCK)]
    for copied in [_threads().submit(ctypes.memmove, *block) for block in blocks]:
        copied.result()


def _is_contiguous(tensor: Any) -> bool:
    return bool(tensor.is_contiguous() if hasattr(tensor, "data_ptr") else tensor.flags.c_contiguous)


def _address(tensor: Any) -> int:
    return int(tensor.data_ptr() if hasattr(tensor, "data_ptr") else tensor.__array_interface__["data"][0])


def views(array: Any, described: Iterable[tuple[Any, Any, int]], is_torch: bool) -> list[Any]:
    """Over the array's bytes: PyTorch's tensors or NumPy's arrays of these shapes and dtypes, from these offsets on.
    They keep the Array.
    """
    import numpy

    if not is_torch:
        bytes_ = numpy.asarray(array)
        return [numpy.ndarray(shape, dtype, bytes_, at) for shape, dtype, at in described]
    import torch

    from ..torch._tensors import tensor_of

    # By DLPack a tensor keeps the memory alone.
    base = torch.from_numpy(numpy.asarray(array)) if array.host_ptr and not array.readonly else tensor_of(array)
    # By .data each has its own count of writes, by which autograd knows of them.
    return [base.data[at : at + math.prod(shape) * t.itemsize].view(t).view(shape) for shape, t, at in described]


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Any:
    """An array in memory of this node, whose values are whatever was there: returned or put as an object it is not
    copied. NumPy's, or with a dtype of torch's a tensor on the CPU.

    Whoever writes to it afterwards changes the object. The memory is used again when the array and the object have
    ended.
    """
    import numpy

    shape = (shape,) if isinstance(shape, int) else tuple(shape)
    is_torch = type(dtype).__module__ == "torch"
    itemsize = dtype.itemsize if is_torch else numpy.dtype(dtype).itemsize
    return views(store.lend(itemsize * math.prod(shape)), [(shape, dtype, 0)], is_torch)[0]


store = Store()
