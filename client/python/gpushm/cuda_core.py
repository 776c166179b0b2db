# SPDX-License-Identifier: MIT
"""cuda.core's memory resources, over pools of the daemon: names, signatures and defaults are cuda.core's.

    from gpushm.cuda_core import DeviceMemoryResource, DeviceMemoryResourceOptions

    mr = DeviceMemoryResource(device, options=DeviceMemoryResourceOptions(max_size=1 << 20, ipc_enabled=True))
    queue.put(mr.allocate(4096, stream=device.default_stream))

Buffers and resources can be pickled, in whichever way and for every process of the user. Memory lives as long as a
process has a Buffer of it, whether its maker lives or not. gpushm.as_array(buffer) is an Array of it.

Programs make no pools: a resource takes memory from one of the daemon's, and max_size limits what its Buffers take, in
each process. A resource that has arrived in another process can allocate there, too.
"""

from __future__ import annotations

import errno
import os
import threading
import uuid
from contextlib import nullcontext, suppress
from functools import lru_cache
from multiprocessing.reduction import ForkingPickler
from typing import Any
from weakref import WeakValueDictionary

try:
    from cuda.core import Buffer as _Buffer
    from cuda.core import DeviceMemoryResourceOptions, PinnedMemoryResourceOptions
    from cuda.core import MemoryResource as _MemoryResource
except ImportError as e:
    raise ImportError(f"gpushm.cuda_core needs cuda.core 0.5 or newer (pip install cuda-core): {e}") from e

# Its from_handle() makes no objects of a subclass.
if not hasattr(_Buffer, "_init"):
    import cuda.core

    raise ImportError(
        "gpushm.cuda_core makes its Buffers by cuda.core's private Buffer._init(), which versions 0.5 to 1.2 have and "
        f"{cuda.core.__version__} has not: pip install 'cuda-core>=0.5,<1.3'"
    )

from . import _core, _driver
from ._foreign import pool_for
from ._handle import Handle

# This process's resources, so that one that arrives twice is one.
_known: WeakValueDictionary[uuid.UUID, Any] = WeakValueDictionary()


class Buffer(_Buffer):  # type: ignore[misc]
    """A Buffer of cuda.core in memory of the daemon. Its pickle says where the memory is, and has none of it."""

    @property
    def is_mapped(self) -> bool:
        """Whether it has arrived here, and was not allocated."""
        return bool(self._is_mapped)

    @property
    def ipc_descriptor(self) -> Handle[Any]:
        """What from_ipc_descriptor() takes, in any process."""
        return Handle(self._handle_bytes())

    def _handle_bytes(self) -> bytes:
        resource = self.memory_resource
        if resource is None or not resource.is_ipc_enabled:
            raise RuntimeError("Memory resource is not IPC-enabled" if resource else "Buffer has been closed")
        # All that is open at an address is one buffer.
        return _core._handle_bytes(resource._arrays[int(self.handle)][0])

    @classmethod
    def from_ipc_descriptor(cls, mr: Any, ipc_descriptor: Handle[Any], *, stream: Any = None) -> Any:
        """The Buffer that was sent, as one of this resource. Errors: as gpushm.open()."""
        if not isinstance(ipc_descriptor, Handle):
            raise TypeError("Argument 'ipc_descriptor' has incorrect type: it is the ipc_descriptor of a Buffer")
        return mr._made(ipc_descriptor.open(device=mr._device), stream, is_mapped=True)

    def __reduce__(self) -> tuple[Any, ...]:
        # One function and plain values: a pickle looks each name up anew, while the other process waits.
        return _buffer_arrived, (self._handle_bytes(), *self.memory_resource._told)


# multiprocessing looks for the reducer of a class that it does not know in several places.
ForkingPickler.register(Buffer, Buffer.__reduce__)


class _Resource(_MemoryResource):  # type: ignore[misc]
    is_device_accessible, is_host_accessible, is_managed = True, False, False

    def _begin(self, pool: _core.PoolInfo, device: int | None, options: Any, known: uuid.UUID | None = None) -> Any:
        self._pool, self._device, self._max_size = pool, device, options.max_size
        self.is_ipc_enabled, self.is_mapped, self.is_closed = options.ipc_enabled, known is not None, False
        self.uuid = known or uuid.uuid4()
        # By address. A Buffer may end while the lock is held, in the same thread: by the garbage collector.
        self._arrays: dict[int, list[Any]] = {}
        self._lock, self._taken = threading.RLock(), 0
        # The same GPU has another ordinal where other GPUs are visible.
        told = None if device == pool.device else device
        pinned = isinstance(self, PinnedMemoryResource)
        self._told = pinned, pool.name, told, self.is_ipc_enabled, self._max_size, self.uuid.bytes
        _known[self.uuid] = self
        return self

    def allocate(self, size: int, stream: Any = None) -> Any:
        """A Buffer of that many bytes, ready for every stream. Errors: as gpushm.create(); OutOfMemory: max_size."""
        if self.is_closed:
            raise RuntimeError(f"{type(self).__name__} has been closed")
        with self._lock:
            if 0 < self._max_size < self._taken + size:
                text = f"{size} bytes asked; {self._taken} of this resource's max_size, {self._max_size}, are taken"
                raise _core.OutOfMemory(errno.ENOMEM, text)
            name = f"~/cuda.core/{os.getpid()}-{os.urandom(6).hex()}"
            # Without arrays there is no table to send.
            buffer = _core.create_many(name, {}, nbytes=size, pool=self._pool.name, transient=True, device=self._device)
            buffer.publish("shared")
            return self._made(buffer, stream, is_mapped=False)

    def _made(self, opened: Any, stream: Any, *, is_mapped: bool) -> Any:
        address, size = opened.device_ptr or opened.host_ptr, opened.nbytes
        with self._lock:
            # From here on the end of another Buffer at this address may close this one, and leave its own.
            self._arrays.setdefault(address, []).append(opened)
            self._taken += size
        try:
            # The driver does not count imports of a pointer, so cuda.core makes none beside ours; it calls deallocate()
            # when nothing uses the Buffer. It binds the default stream to the thread's context, and needs one.
            here = _core._current_device()
            fits = here is not None and self._device in (None, here)
            with nullcontext() if fits else _driver.context(self._device):
                made = Buffer._init(address, size, mr=self, stream=stream)
        except BaseException:
            # Unless cuda.core has done so.
            if any(b is opened for b in self._arrays.get(address, ())):
                self.deallocate(address, size)
            raise
        made._is_mapped = is_mapped
        return made

    def deallocate(self, ptr: Any, size: int, stream: Any = None) -> None:
        """Called at a Buffer's end. Waits for what this process has queued on the GPU, on any stream."""
        with self._lock:
            opened = self._arrays[int(ptr)].pop()
            if not self._arrays[int(ptr)]:
                del self._arrays[int(ptr)]
            self._taken -= size
        with suppress(_core.InUse):  # An array of as_array() keeps it open.
            opened.close()

    def close(self) -> None:
        """Ends allocation; its Buffers stay."""
        self.is_closed = True
        _arrived.cache_clear()

    @property
    def allocation_handle(self) -> Any:
        """What from_allocation_handle() takes: the resource itself, which can be pickled."""
        return self

    @classmethod
    def _checked(cls, given: Any) -> Any:
        if not isinstance(given, cls):
            raise TypeError(f"an allocation_handle of a gpushm.cuda_core.{cls.__name__} is wanted, not {given!r}")
        return given

    def __reduce__(self) -> tuple[Any, ...]:
        return _arrived, self._told


class DeviceMemoryResource(_Resource):
    """cuda.core's DeviceMemoryResource, in a pool of the daemon.

    pool: its name; None: that in GPUSHM_CUDA_CORE_POOL, or else the device's first pool of GPU memory in which the user
    may create. options: max_size, and ipc_enabled, without which its Buffers can't be sent.
    """

    def __init__(self, device_id: Any, options: Any = None, *, pool: str | None = None) -> None:
        device = int(getattr(device_id, "device_id", device_id))
        found = pool_for(_core._ON_GPU, pool or os.environ.get("GPUSHM_CUDA_CORE_POOL"), device=device)
        self._begin(found, device, _options(DeviceMemoryResourceOptions, options))

    @classmethod
    def from_allocation_handle(cls, device_id: Any, alloc_handle: Any) -> Any:
        """The resource that was sent."""
        return cls._checked(alloc_handle)

    @property
    def device_id(self) -> int:
        """The ordinal, in this process, of the GPU that the memory is mapped for."""
        return -1 if self._device is None else self._device


class PinnedMemoryResource(_Resource):
    """cuda.core's PinnedMemoryResource, in a pinned pool of the daemon.

    pool: its name; None: the first one, of the NUMA node that the options name, if they do.
    """

    is_host_accessible, device_id = True, -1

    def __init__(self, options: Any = None, *, pool: str | None = None) -> None:
        options = _options(PinnedMemoryResourceOptions, options)
        node = options.numa_id
        found = pool_for(("pinned",), pool, **({} if node is None else {"numa_node": node}))
        self._begin(found, None, options)

    @property
    def numa_id(self) -> int | None:
        """The NUMA node that has the memory."""
        return self._pool.numa_node

    @classmethod
    def from_allocation_handle(cls, alloc_handle: Any) -> Any:
        """The resource that was sent."""
        return cls._checked(alloc_handle)


def _options(cls: Any, given: Any) -> Any:
    return given if isinstance(given, cls) else cls(**(given or {}))


# It keeps the last ones: a resource ends with its last Buffer, and to make it anew is to ask the daemon for its pools.
@lru_cache(maxsize=64)
def _arrived(pinned: bool, name: str, device: int | None, ipc_enabled: bool, max_size: int, known: bytes) -> Any:
    id = uuid.UUID(bytes=known)
    if (found := _known.get(id)) is not None:
        return found
    cls = PinnedMemoryResource if pinned else DeviceMemoryResource
    pool = pool_for(_core._BY_DRIVER, name)
    options = DeviceMemoryResourceOptions(ipc_enabled=ipc_enabled, max_size=max_size)
    return cls.__new__(cls)._begin(pool, pool.device if device is None and not pinned else device, options, id)


def _buffer_arrived(descriptor: bytes, *resource: Any) -> Any:
    return Buffer.from_ipc_descriptor(_arrived(*resource), Handle(descriptor))
