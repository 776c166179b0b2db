# SPDX-License-Identifier: MIT
"""Where a process puts the tensors that it gives to others, and what it has open of theirs.

Those that lie in a buffer already stay there: those of empty(), of gpushm.torch.memory(), of another object, of an
attached module. Others are copied once. For weights() that is a new sealed buffer. Else a new buffer costs several
times what the copy costs: fresh pages on the host, on a GPU the mappings and the holder's lease. So a process keeps its
buffers, mapped, as slabs: they are published "shared", and it puts the next object into one when nobody reads the last
one any more, which the holder knows. Readers keep a slab mapped, too, and the holder its lease.

A GPU may still write an object when it has been passed on: the holder lets readers have it when that is done, and
nobody has it if its maker dies before.
"""

from __future__ import annotations

import ctypes
import math
import os
import secrets
import select
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache, partial
from queue import SimpleQueue
from typing import Any, NamedTuple

from .. import _copy, _core, _driver, _handle, _models
from .._array import Buffer

KEEP = 10.0  # seconds for which a slab waits for the next object
PATIENCE = 5.0  # the same for room in the pool
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

    def __init__(self, nbytes: int, gpu: int | None) -> None:
        self.nbytes, self.gpu = nbytes, gpu
        self.buffer = created(secrets.token_hex(16), nbytes, gpu)
        self.buffer.publish("shared")
        self._layout: list[tuple[Any, Any, int]] = []  # of the last object on a GPU, and where it was copied
        self._to: list[Any] = []
        self._copied: Any = None
        self.objects: set[str] = set()  # with LOAN, while somebody writes to it
        self.since = time.monotonic()

    def fill(self, tensors: Sequence[Any], offsets: list[int]) -> Callable[[], object]:
        """Copies them, on a GPU behind what PyTorch's current stream has: what is returned waits for that."""
        if self.gpu is None:
            _fill(self.buffer, tensors, offsets)
            return int
        import torch

        layout = [(t.shape, t.dtype, at) for t, at in zip(tensors, offsets, strict=False)]
        if self._layout != layout:
            self._layout, self._to = layout, views(_whole(self.buffer), layout, True)
        if self._copied:  # the last object may have ended before that
            torch.cuda.current_stream(self.gpu).wait_event(self._copied)
        with torch.no_grad():
            torch._foreach_copy_(self._to, tensors)
        self._copied = _queued(self.gpu)
        return self._copied.synchronize  # type: ignore[no-any-return]


def _queued(gpu: int) -> Any:
    """An event behind what PyTorch's current stream has."""
    import torch

    made = torch.cuda.Event(blocking=True)
    made.record(torch.cuda.current_stream(gpu))
    return made


class Waiter:
    """Waits for GPUs, in a thread: their work may wait for another process, which may wait for a word of this one."""

    def __init__(self) -> None:
        self._todo: SimpleQueue[tuple[Callable[[], object], Any, str, str]] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, daemon=True)
            self._thread.start()

    def put(self, wait: Callable[[], object], link: Any, verb: str, key: str) -> None:
        """Says that after the wait. After start; in any thread, under any lock."""
        self._todo.put((wait, link, verb, key))

    def drop(self, what: list[Any]) -> None:
        """Lets go of what is in that list, where buffers are closed: that waits for the GPU."""
        if what:
            self.start()
            self._todo.put((what.clear, None, "", ""))

    def _run(self) -> None:
        while True:
            wait, link, verb, key = self._todo.get()
            try:
                wait()
            except Exception:  # a GPU that has failed writes nothing, and reads nothing
                verb = "end" if verb == "whole" else verb
            if link:
                link.say(verb, key)


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
        self._idle: dict[int, tuple[float, Buffer]] = {}  # of others, by id, and since when nothing is read
        self._given: dict[int, str] = {}  # open buffers, by id, that the holder has: what it answered
        self._is_far = False  # other nodes read what is made here
        self._writes, self._reads = Waiter(), Waiter()

    def _slab(self, nbytes: int, gpu: int | None, key: str) -> Slab:
        """One in which that object is from now on. Where the pool is full, processes let go of what waits for one."""
        end = time.monotonic() + PATIENCE
        while True:
            with self._lock:
                try:
                    made = self._free_slab(nbytes, gpu)
                    made.objects.add(key)
                    return made
                except _core.PoolFull:
                    if time.monotonic() > end:
                        raise
                    self.tidy(0)
            self.on_full()
            time.sleep(0.02)

    def _free_slab(self, nbytes: int, gpu: int | None) -> Slab:
        for found in sorted(self._slabs, key=lambda s: s.nbytes):
            if nbytes <= found.nbytes <= 2 * nbytes + (1 << 20) and not found.objects and found.gpu == gpu:
                return found
        step = 1 << max(nbytes.bit_length() - 4, 12)
        self._slabs.append(Slab(max(-(-nbytes // step), 1) * step, gpu))
        return self._slabs[-1]

    def lend(self, nbytes: int) -> Any:
        """Memory for tensors that are to be given away: an Array of at least that many bytes, which its views keep."""
        slab = self._slab(nbytes, None, LOAN)
        made = _whole(slab.buffer)
        weakref.finalize(made, slab.objects.discard, LOAN).atexit = False
        return made

    def on_word(self, verb: str, key: str) -> None:
        """What the holder says."""
        gone: list[Any] = []
        with self._lock:
            if verb in ("free", "lost"):
                for slab in [s for s in self._slabs if key in s.objects]:
                    slab.objects.discard(key)
                    slab.since = time.monotonic()
                    if verb == "lost":
                        self._slabs.remove(slab)
                        gone.append(slab)
            elif verb in ("ended", "rests"):
                gone.append(self._read.pop(key, None))
                if gone[0] is not None and verb == "rests":
                    self._idle[gone[0].buffer.id] = time.monotonic(), gone[0].buffer
            elif verb == "forgot":
                gone.append(self._idle.pop(int(key), None))
            elif verb == "far":
                self._is_far = True
            elif verb == "left":
                gone += [*self._read.values(), *self._slabs]
                self._read.clear()
                self._given.clear()
                self._slabs = [s for s in self._slabs if not s.objects]
            else:
                self.tidy(KEEP if verb == "tick" else 0)
        self._reads.drop(gone)

    def tidy(self, keep: float) -> None:
        """Frees what has waited for an object for that many seconds."""
        with self._lock:
            since = time.monotonic() - keep
            gone: list[Any] = [*self._slabs, *self._idle.values()]
            self._slabs = [s for s in self._slabs if s.objects or s.since > since]
            self._idle = {id: one for id, one in self._idle.items() if one[0] > since}
        self._reads.drop(gone)

    def read(
        self, link: Any, key: str, likely: tuple[str, int] | None, access: Any, device: Any,
        made_of: Callable[[Any], Any] = lambda whole: whole,
    ) -> Any:  # fmt: skip
        """What is made of all bytes of the object, an Array, which is open until that has ended. NotFound: the holder
        does not have it.

        likely: the name and the id of its buffer on this node, which is opened while the holder is asked.
        """
        if access == "r":
            with self._lock:
                if (found := self._read.setdefault(key, None)) is not None:
                    return made_of(found)
        question, buffer = link.asked("use", key), None
        try:
            if likely:
                with suppress(_core.Error):
                    buffer = self._open(*likely, access, device)
                    made = made_of(whole := _whole(buffer))
            while True:
                try:
                    name, id = link.wait(question).split()
                    break
                except TimeoutError:
                    if not question.done():
                        raise
                    question = link.asked("use", key)  # the source's GPU is not done
            if buffer is None or buffer.id != int(id):
                buffer = self._open_near(link, key, name, int(id), access, device)
                made = made_of(whole := _whole(buffer))
        except BaseException:
            made = whole = buffer = None  # and not for as long as the traceback
            with self._lock:
                self._read.pop(key, None)
            # Also where a KeyboardInterrupt came before the answer.
            question.add_done_callback(lambda q: q.cancelled() or q.result()[:2] != "ok" or link.say("done", key))
            raise
        if buffer.device is None:
            weakref.finalize(whole, link.say, "done", key).atexit = False
        else:
            self._reads.start()
            wait = partial(_driver.synchronize_all, buffer.device)
            weakref.finalize(whole, self._reads.put, wait, link, "done", key).atexit = False
        with self._lock:
            if key in self._read and access == "r":
                self._read[key] = whole
        return made

    def _open(self, name: str, id: int, access: Any, device: Any) -> Buffer:
        with self._lock:
            _, idle = self._idle.pop(id, (0, None)) if access == "r" else (0, None)
        return idle or _handle.check_id(_opened(name, access, device), name, id)

    def _open_near(self, link: Any, key: str, name: str, id: int, access: Any, device: Any) -> Buffer:
        """By peer access where this process sees the buffer's GPU. Ray shows each actor its own alone: then a copy on
        that, one for all its readers.
        """
        try:
            return self._open(name, id, access, device)
        except _core.DeviceFailed as unseen:
            if device is None:
                raise
            try:
                near = pool(_core._current_device() or 0)
            except _core.NotFound:
                raise unseen from None
            return _opened(link.ask("seal", key, near), access, device)

    def place(self, link: Any, key: str, tensors: Sequence[Any], sealed: bool) -> tuple[Placed, str]:
        """Places the tensors of that object in a buffer that others can open, and gives that to the holder. Returns the
        holder's answer, too. sealed: uses no slab.
        """
        device = getattr(tensors[0], "device", None)
        gpu = int(device.index) if device is not None and str(device) != "cpu" else None
        found = None
        with self._lock, suppress(_core.NotFound):
            found = self._in_place(key, tensors, sealed)
        if found:
            later = gpu is not None and found.buffer.access == "r+" and found.buffer.state == "shared"
            try:
                kept = self._give(link, key, found.buffer, later)()
                if gpu is not None and later:
                    self._writes.start()
                    self._writes.put(_queued(gpu).synchronize, link, "whole", key)
                return found, kept
            except _core.NotFound:  # another buffer has its name by now, or none: they are copied
                self.on_word("lost", key)
        ends = [0]
        for tensor in tensors:
            ends.append(ends[-1] + -(-tensor.nbytes // 256) * 256)
        pieces = [(BYTES, offset) for offset in ends[:-1]]
        if not sealed and (gpu is None or not self._is_far):
            slab = self._slab(ends[-1], gpu, key)
            given = self._give(link, key, slab.buffer, gpu is not None)
            wait = slab.fill(tensors, ends)
            kept = given()
            if gpu is not None:
                self._writes.start()
                self._writes.put(wait, link, "whole", key)
            return Placed(slab.buffer, pieces), kept
        with created(key, ends[-1], gpu) as buffer:
            _fill(buffer, tensors, ends)
            buffer.publish()
            given = self._give(link, key, buffer, False)
            return Placed(_core.open_many(buffer.name, device=gpu), pieces), given()

    def _give(self, link: Any, key: str, buffer: Buffer, later: bool) -> Callable[[], str]:
        """Gives the holder an object in that buffer. The function that it returns waits for the holder's answer. The
        holder keeps its lease until this process closes the buffer: it gets the next object without an answer.

        later: the GPU still writes the object. Readers wait until "whole".
        """
        words = [key, buffer.name, str(buffer.id), *(["later"] if later else [])]
        known = self._given.get(buffer.id)
        if known and _has_its_name(buffer) and link.tell("more", *words):
            return lambda: known
        question = link.asked("keep", *words)

        def wait() -> str:
            answer: str = link.wait(question)
            self._given[buffer.id] = answer
            weakref.finalize(buffer, self._forget, link, buffer.id).atexit = False
            return answer

        return wait

    def _forget(self, link: Any, id: int) -> None:
        if self._given.pop(id, None):
            link.say("forget", str(id))

    def _in_place(self, key: str, tensors: Sequence[Any], sealed: bool) -> Placed | None:
        spans = [span for span in map(_span, tensors) if span]
        for buffer in _core._opened() if len(spans) == len(tensors) else []:
            start = buffer.device_ptr or buffer.host_ptr or 0
            if start and start <= spans[0][0] < start + buffer.nbytes and buffer.access != "c":
                placed = _in_buffer(buffer, start, spans, sealed)
                for slab in self._slabs:
                    if placed and slab.buffer is buffer:
                        slab.objects.add(key)
                return placed
        return None


def _opened(name: str, access: Any, device: Any) -> Buffer:
    made = _core.open_many(name, access, device=device)
    if made.host_ptr and made.kind == "host":  # a fault of each page takes twice as long
        _libc.madvise(ctypes.c_void_p(made.host_ptr), ctypes.c_size_t(made.nbytes), _MADV_POPULATE_READ)
    return made


def _whole(buffer: Buffer) -> Any:
    return buffer.array((buffer.nbytes,), "uint8")


def _has_its_name(buffer: Buffer) -> bool:
    if buffer.name.startswith("ray/"):  # no program gives that to another one
        daemon = select.poll()
        daemon.register(buffer.connection.fileno(), 0)
        return not buffer.lost and not daemon.poll(0)
    with suppress(_core.NotFound):
        return bool(_core.stat(buffer.name).id == buffer.id)
    return False


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
    name, start, end = "", 0, -1
    for at, nbytes in spans:
        if not start <= at <= end - nbytes:  # not in the array of the last one
            found = ((n, a, a + size) for n, (a, size) in arrays.items() if a <= at and at + nbytes <= a + size)
            name, start, end = next(found, ("", 0, -1))
            if not name:
                return None
        made.append((name, at - start))
    return made


def _fill(buffer: Buffer, tensors: Sequence[Any], offsets: list[int]) -> None:
    """Copies them, behind what the libraries' current streams have."""
    todo = ((t, at) for t, at in zip(tensors, offsets, strict=False) if t.nbytes)
    _copy.fill_many((f"{at}", buffer.array(tuple(t.shape), t.dtype, offset=at), t) for t, at in todo)


def _span(tensor: Any) -> tuple[int, int] | None:
    """Its address and bytes. None: it is not contiguous, or not aligned as PyTorch's views are."""
    if not hasattr(tensor, "data_ptr"):
        return (tensor.__array_interface__["data"][0], tensor.nbytes) if tensor.flags.c_contiguous else None
    at: int = tensor.data_ptr()
    return (at, tensor.nbytes) if tensor.is_contiguous() and at % tensor.itemsize == 0 else None


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
    memory = base.untyped_storage()
    # So each has its own count of writes, by which autograd knows of them.
    return [base.new_empty(0, dtype=t).set_(memory, at // t.itemsize, shape) for shape, t, at in described]


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
