# SPDX-License-Identifier: MIT
"""A memory resource for cuda.core: cuda.core's Buffers in pools of gpushm, and over Arrays that exist."""

from __future__ import annotations

import errno
import os
import secrets
from contextlib import suppress
from typing import Any, Literal

try:
    from cuda.core import Buffer as _Buffer
    from cuda.core import MemoryResource as _MemoryResource
except ImportError:  # cuda.core before 0.5
    from cuda.core.experimental import Buffer as _Buffer
    from cuda.core.experimental import MemoryResource as _MemoryResource

from . import _core, _driver


class MemoryResource(_MemoryResource):  # type: ignore[misc]
    """A memory resource of cuda.core: allocate() makes cuda.core's Buffers, in a pool of gpushm.

    A Buffer's memory has a name and is shared from the start. array() returns its gpushm.Array; another process opens
    that by its name or its handle(), and makes a Buffer of it by buffer(array). The end of a Buffer, or of the process,
    unlinks the name; processes that have it open keep the memory.

    pool: a name; None is the daemon's default. prefix: of the names. mode, wait, device: as for gpushm.create().
    """

    def __init__(
        self,
        pool: str | None = None,
        *,
        prefix: str = "~/cuda.core",
        mode: int = 0o600,
        wait: float | None = 0,
        device: int | Literal["current"] | None = None,
    ) -> None:
        super().__init__()
        self._options: dict[str, Any] = {"pool": pool, "mode": mode, "wait": wait, "device": device}
        self._prefix = prefix
        self._arrays: dict[int, Any] = {}
        self._pool = _pool(pool)

    def allocate(self, size: int, stream: Any = None, **unused: Any) -> Any:
        """A cuda.core Buffer of that many bytes, ready for every stream. Errors: as gpushm.create()."""
        name = f"{self._prefix}/{os.getpid()}-{secrets.token_hex(6)}"
        # Transient: a process that is killed closes no Buffer, and its memory goes with it all the same.
        array = _core.create(name, (size,), "uint8", transient=True, **self._options)
        address = array.device_ptr or array.host_ptr or 0
        try:
            array.publish("shared")
            made = _owned(address, size, self, stream)
        except BaseException:
            array.unlink()
            array.close()
            raise
        self._arrays[address] = array
        return made

    def deallocate(self, ptr: Any, size: int, stream: Any = None, **unused: Any) -> None:
        """Called by a Buffer's close(). Waits for what this process has queued on the GPU, on any stream."""
        array = self._arrays.pop(int(ptr))
        # Another process may have unlinked it.
        with suppress(_core.NotFound):
            array.unlink()
        array.close()

    def array(self, buffer: Any) -> Any:
        """An Array of the bytes of a Buffer of this resource. Close or delete it before the Buffer is closed."""
        return self._arrays[int(buffer.handle)][:]

    @staticmethod
    def buffer(array: Any) -> Any:
        """A cuda.core Buffer over an Array, which it keeps open."""
        return _Buffer.from_handle(array.device_ptr or array.host_ptr, array.nbytes, owner=array)

    @property
    def is_device_accessible(self) -> bool:
        """Whether a GPU reaches the memory: in all pools except host pools."""
        return bool(self._pool.kind != "host")

    @property
    def is_host_accessible(self) -> bool:
        """Whether the CPU reaches the memory: in host and pinned pools."""
        return self._pool.kind in ("host", "pinned")

    @property
    def is_managed(self) -> bool:
        """Always False."""
        return False

    @property
    def device_id(self) -> int:
        """The ordinal, in this process, of the GPU that has the memory mapped; -1: host or pinned memory."""
        if self._pool.device is None or self.is_host_accessible:
            return -1
        device = self._options["device"]
        return int(self._pool.device if device is None else _driver.current_device() if device == "current" else device)

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._prefix, self._options)

    def __repr__(self) -> str:
        return f"<gpushm.MemoryResource in pool {self._pool.name!r}, {len(self._arrays)} Buffers>"


def _pool(name: str | None) -> Any:
    for pool in _core.pools():
        if pool.is_default if name is None else pool.name == name:
            return pool
    raise _core.NotFound(errno.ENOENT, f'there is no pool "{name}": gpushm.pools() lists them')


def _owned(address: int, size: int, resource: Any, stream: Any) -> Any:
    """A Buffer that calls deallocate() at its end, with that stream, where this version of cuda.core supports one."""
    if stream is not None:
        try:
            return _Buffer.from_handle(address, size, mr=resource, stream=stream)
        except TypeError:
            pass
    return _Buffer.from_handle(address, size, mr=resource)


def _again(prefix: str, options: dict[str, Any]) -> MemoryResource:
    return MemoryResource(prefix=prefix, **options)
