# SPDX-License-Identifier: MIT
"""memory(): what PyTorch allocates in a section lies in a buffer, so that it can be published without a copy.

The section has a torch.cuda.MemPool of its own, whose allocator are two functions of the extension: they give the
buffer's memory away from the start to the end (core/arena.c). Four rules come from PyTorch's allocator:

- a tensor that outlives its MemPool is freed by cudaFree(), whichever allocator its memory is from (pytorch#146431);
  so a pool is kept until PyTorch has freed everything in it, and the buffer until the pool has ended;
- of two pools whose sections are nested the inner one gets nothing (pytorch#161193): that is refused;
- a pool belongs to the device that is current when it is made (pytorch#149802);
- with expandable_segments some versions ignore a pool's allocator (pytorch#147851): the first allocation is checked.
"""

from __future__ import annotations

import atexit
import ctypes
import errno
import gc
import re
import threading
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from . import _attach, _fingerprint, _layout
from ._tensors import Tensors

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from types import TracebackType

    from .._typing import Attrs, Buffer

_UNUSED_MAX = 64 << 20  # bytes of a buffer that stay taken for nothing
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(?:i?b)?\s*", re.IGNORECASE)

_thread = threading.local()  # .memory: the Memory whose section the thread is in
_kept: list[_Space] = []  # spaces that tensors still use, although no Memory does
_allocator: list[Any] = []  # PyTorch's object for the two functions


def memory(
    name: str,
    size: int | str,
    *,
    device: int | None = None,
    replace: bool = False,
    pool: str | None = None,
    mode: int = 0o600,
    gid: int | None = None,
    transient: bool = False,
    attrs: Attrs | None = None,
    wait: float | None = 0,
) -> Memory:
    """A section in which the memory that this thread's PyTorch allocates on a GPU lies in a new buffer.

        with gpushm.torch.memory("llama", "16 GiB") as mem:
            model = load_and_quantise()
            mem.publish(model)

    size: bytes, or "16 GiB"; PyTorch takes blocks of 2 or 20 MiB for small tensors, and memory that is freed in the
    section is used again by the section alone, so leave some room. device: the GPU, None for the current one. replace
    and the other options: as for publish().

    Works for the GPU only: NotSupported on a machine without one, StateError within another such section.
    """
    options = {"pool": pool, "mode": mode, "gid": gid, "transient": transient, "attrs": attrs, "wait": wait}
    return Memory(name, _bytes(size), device, replace, options)


def _bytes(size: int | str) -> int:
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        if not found:
            raise ValueError(f"size is a number of bytes, or a text like '16 GiB', not {size!r}")
        size = int(float(found[1]) * _UNITS[found[2].lower()])
    if size <= 0:
        raise ValueError(f"size is above 0, not {size}")
    return size


class _Space:
    """A buffer, the allocator over it, and PyTorch's pool that asks the allocator.

    The buffer is not given to the program, because its end before the pool's would be fatal: the address may become
    another buffer's, PyTorch then knows two blocks there, and ends the process where the second one is freed.
    """

    def __init__(self, buffer: Buffer, device: int) -> None:
        self.buffer: Buffer = buffer
        self.device: int = device
        self.start: int = buffer.device_ptr or 0
        self.id: int = _core._arena_new(self.start, buffer.nbytes, device)
        if not _allocator:
            made = torch.cuda.memory.CUDAPluggableAllocator(_core.__file__, "gpushm_torch_alloc", "gpushm_torch_free")
            _allocator.append(_kept_for_ever(made.allocator()))
        with torch.cuda.device(device):
            self.pool: Any = torch.cuda.MemPool(_allocator[0])
        _spaces.add(self)

    def has(self, address: int, nbytes: int = 1) -> bool:
        """Whether these bytes are in the buffer."""
        return self.start <= address and address + nbytes <= self.start + self.buffer.nbytes

    def in_use(self) -> int:
        """Bytes of tensors that are alive."""
        if self.pool is None:
            return 0
        blocks = [block for segment in self.pool.snapshot() for block in segment["blocks"]]
        return sum(block["size"] for block in blocks if block["state"] != "inactive")

    def end(self) -> bool:
        """Ends the pool, and then the buffer. False: PyTorch still uses its memory, and it stays."""
        if self.in_use():
            return False
        self.pool = None
        _, allocs, frees, *_ = _core._arena_stat(self.id)
        if frees < allocs:
            return False
        self.buffer.close()
        _core._arena_drop(self.id)
        return True


_spaces: weakref.WeakSet[_Space] = weakref.WeakSet()


def _kept_for_ever(obj: Any) -> Any:
    """PyTorch may use it until the process has ended, when Python has forgotten its modules."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(obj))
    return obj


@atexit.register
def _keep_all() -> None:
    """At the end of the process nothing is freed: tensors may outlive the pools, and CUDA may have ended."""
    _kept.extend(_spaces)
    for space in _kept:
        _kept_for_ever(space)


def move_out(lies_in: Callable[[int], bool]) -> None:
    """Gives the tensors whose address lies there memory elsewhere. Those that share memory share it again."""
    moved: dict[int, torch.UntypedStorage] = {}
    for tensor in gc.get_objects():
        # Others, as those that only trace and sparse ones, have no address.
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter) or tensor.layout is not torch.strided:
            continue
        storage = tensor.untyped_storage()
        if not lies_in(storage.data_ptr()):
            continue
        new = moved.setdefault(storage.data_ptr(), storage.clone())
        tensor.data = tensor.detach().new_empty(0).set_(new, tensor.storage_offset(), tensor.size(), tensor.stride())


def _end_unused() -> None:
    _kept[:] = [space for space in _kept if not space.end()]


class Memory:
    """A section of memory(). Its memory lives as long as a tensor in it, or this object."""

    def __init__(self, name: str, size: int, device: int | None, replace: bool, options: dict[str, Any]) -> None:
        """Called by memory()."""
        self._name, self._size, self._device, self._replace, self._options = name, size, device, replace, options
        self._space: _Space | None = None
        self._section: AbstractContextManager[None] | None = None

    @property
    def nbytes(self) -> int:
        """The buffer's size."""
        return int(self._open().buffer.nbytes)

    @property
    def used(self) -> int:
        """Bytes that PyTorch has taken of the buffer."""
        return _core._arena_stat(self._open().id)[0]

    def _open(self) -> _Space:
        if self._space is None:
            raise _core.StateError(errno.EINVAL, f'memory("{self._name}") was not entered, or has ended')
        return self._space

    # ---- the section ----

    def __enter__(self) -> Memory:
        if not torch.cuda.is_available():
            raise _core.NotSupported(
                errno.ENOTSUP,
                "memory() needs a GPU, since it is PyTorch's allocator on a GPU that it directs, and PyTorch has none "
                "here: publish() shares a module on the CPU, with a copy",
            )
        if self._space is not None or getattr(_thread, "memory", None) is not None:
            raise _core.StateError(errno.EBUSY, "a section of memory() can't be entered twice, or within another one")
        _end_unused()
        device = torch.cuda.current_device() if self._device is None else self._device
        options = self._options | {"pool": self._options["pool"] or _layout.pool_on(device)}
        name = _layout.hidden_name() if self._replace else self._name
        # The context must be PyTorch's before the buffer is mapped.
        torch.cuda.synchronize(device)
        self._space = _Space(_core.create_many(name, {}, nbytes=self._size, device=device, **options), device)
        try:
            self._begin(self._space)
        except BaseException:
            self._abandon()
            raise
        return self

    def _begin(self, space: _Space) -> None:
        section = torch.cuda.use_mem_pool(space.pool, device=space.device)
        section.__enter__()
        self._section = section
        _core._arena_use(space.id)
        _thread.memory = self
        address = torch.empty(1, dtype=torch.uint8, device=f"cuda:{space.device}").data_ptr()
        if not space.has(address):
            raise _core.NotSupported(
                errno.ENOTSUP,
                "this version of PyTorch does not ask a pool's allocator for memory; take expandable_segments out of "
                "PYTORCH_CUDA_ALLOC_CONF and PYTORCH_ALLOC_CONF, with which some versions do not",
            )

    def _leave(self) -> None:
        """Ends the section: from now on PyTorch allocates as before."""
        if self._section is None:
            return
        section, self._section = self._section, None
        _core._arena_use(0)
        _thread.memory = None
        section.__exit__(None, None, None)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if getattr(_thread, "memory", None) is not self and self._section is not None:
            raise _core.StateError(errno.EINVAL, "a section of memory() ends in the thread that began it")
        self._leave()
        if error is None:
            return
        if isinstance(error, torch.cuda.OutOfMemoryError):
            self._explain(error)
        if self._space is not None and self._space.buffer.state == "filling":
            self._abandon()

    def _explain(self, error: BaseException) -> None:
        used, _, _, refused, asked = _core._arena_stat(self._open().id)
        if refused:
            error.add_note(
                f'buffer "{self._name}" of memory() is full: {used} of {self._size} bytes are taken, and PyTorch asked '
                f"for {asked} more; it takes blocks of 2 and 20 MiB for small tensors"
            )

    def _abandon(self) -> None:
        """The name is free at once. The memory stays while tensors are alive, as in the exception's traceback."""
        self._leave()
        space, self._space = self._space, None
        if space is None:
            return
        space.buffer.unlink()
        if not space.end():
            _kept.append(space)

    def close(self) -> None:
        """Ends the memory. InUse: tensors in it are alive."""
        self._leave()
        space = self._space
        if space is None:
            return
        if not space.end():
            raise _core.InUse(
                errno.EBUSY,
                f'memory("{self._name}") can\'t be closed: PyTorch uses {space.in_use()} bytes of it; delete the '
                "tensors",
            )
        self._space = None

    def __del__(self) -> None:
        space = getattr(self, "_space", None)
        if space is not None and not space.end():
            _kept.append(space)

    # ---- publishing ----

    def publish(
        self,
        source: torch.nn.Module | Mapping[str, torch.Tensor],
        *,
        fingerprint: Mapping[str, str] | None = None,
        digest: bool = True,
    ) -> Tensors:
        """Ends the section, and publishes a module's tensors sealed, as publish() does, where they are.

        Those that are not in the buffer, as buffers that a constructor has made on the CPU, are copied to its end; the
        module goes on with its own. From now on nobody can write to the memory, this process included.

        If more than 64 MiB of the buffer are unused, and the pool has room, a copy of the tensors is published instead.
        Then the buffer ends with the program's own tensors, which may be written to until then.

        Returns the tensors in the buffer. Errors: TooLarge (no room for the tensors outside), otherwise as publish().
        """
        space = self._open()
        self._leave()
        # cuBLAS keeps its workspace. One that was allocated in the section would be written to later.
        torch._C._cuda_clearCublasWorkspaces()
        if space.buffer.nbytes - self.used > _UNUSED_MAX and self._publish_copy(source, fingerprint, digest):
            return Tensors(_core.open_many(self._name, device=space.device))
        tensors = _layout.placed(_attach.tensors_of(source))
        if not tensors:
            raise ValueError("there is no tensor to publish")
        regions = _layout.regions(tensors)
        outside = [region for region in regions if not self._place(space, region)]
        self._make_room(space, outside)
        said = _fingerprint.encoded(_fingerprint.of(source, space.device, fingerprint))
        attrs = self._options["attrs"] or {}
        space.buffer.set_attrs(_layout.with_types({**attrs, _fingerprint.ATTRIBUTE: said}, tensors))
        _layout.publish(space.buffer, self._name if self._replace else None, tensors, regions, outside, digest)
        # A lease of its own: the space's must outlive PyTorch's pool, and nobody else may end it.
        return Tensors(_core.open_many(self._name, device=space.device))

    def _publish_copy(
        self, source: torch.nn.Module | Mapping[str, torch.Tensor], fingerprint: Mapping[str, str] | None, digest: bool
    ) -> bool:
        """Publishes the tensors in a buffer of their size. False: the pool has no room for it."""
        from . import publish

        hidden = _layout.hidden_name()
        try:
            made = publish(hidden, source, fingerprint=fingerprint, digest=digest, **self._options | {"wait": 0})
        except _core.PoolFull:
            return False
        with made:
            try:
                self._open().buffer.unlink()
                _core.rename(hidden, self._name, replace=self._replace)
            except BaseException:
                _core.unlink(hidden)
                raise
        return True

    def leave_others(self) -> None:
        """After a copy was published: gives the tensors that still lie in the buffer memory of their own, so that it
        ends. They are other code's, as a table of a module that was first imported in the section.
        """
        space = self._open()
        if space.buffer.state == "filling":
            move_out(space.has)

    @staticmethod
    def _place(space: _Space, region: _layout.Region) -> bool:
        if region.device != space.device or not space.has(region.start, region.end - region.start):
            return False
        region.offset = region.start - space.start
        return True

    def _make_room(self, space: _Space, regions: list[_layout.Region]) -> None:
        """Behind what PyTorch has taken, which asks for no more."""
        end = self.used
        for region in regions:
            end = region.place(end)
            if end > space.buffer.nbytes:
                first = region.members[0]
                raise _core.TooLarge(
                    errno.EFBIG,
                    f'buffer "{self._name}" has no room for {first.name!r}, {region.end - region.start} bytes on '
                    f"{first.tensor.device} outside of it: give memory() a larger size, or make the tensor in the "
                    "section",
                )
