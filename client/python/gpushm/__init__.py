# SPDX-License-Identifier: MIT
"""shm_open for GPUs: named arrays in GPU and host memory, shared between processes.

    import gpushm, numpy as np

    with gpushm.create("frames/0", (8, 1080, 1920, 3), "uint8") as f:  # one process
        f.copy_from_host(clip)
        f.publish()

    with gpushm.open("frames/0", timeout=5) as f:                       # any other
        t = torch.from_dlpack(f)                                        # no copy

The module's functions share one connection to the daemon gpushmd, which the first of them makes; connect() makes
others. Every call that waits, for the daemon or a GPU, lets other threads run. Only functions that return NumPy's
arrays need NumPy.
"""

import atexit as _atexit
from collections.abc import Mapping as _Mapping
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _asyncio, _core, _driver, _dtype, _libraries
from ._array import Array, Buffer, Record
from ._asyncio import open_async, wait_async
from ._core import (
    AccessDenied,
    BadArgument,
    BadContents,
    BufferInfo,
    Connection,
    DaemonGone,
    DeviceFailed,
    Dirty,
    DriverError,
    Error,
    Event,
    Exists,
    ForkError,
    Frame,
    GraphFrame,
    Holder,
    InUse,
    LayoutError,
    LimitReached,
    LoggedEvent,
    NotFound,
    NotKeptWarning,
    NotPublished,
    NotSupported,
    OutOfMemory,
    PoolFull,
    PoolInfo,
    ProducerDied,
    Reader,
    ReaderDropped,
    ReadOnly,
    StateError,
    Status,
    Stream,
    StreamEnded,
    StreamInfo,
    StreamReader,
    StreamStats,
    Timeout,
    TooLarge,
    UnpublishedWarning,
    Usage,
    Watch,
    clean,
    create,
    create_many,
    flush,
    flush_cleanup,
    follow,
    load,
    open,
    open_many,
    open_or_create,
    pending_cleanup,
    pull,
    pull_wait,
    rename,
    save,
    set_cleanup_limits,
    set_timeout,
    stat,
    status,
    stream,
    unlink,
    verify,
    wait,
    watch,
)
from ._create import (
    Mapped,
    create_like,
    mapped,
    mapped_array,
    mapped_array_like,
    pinned,
    pinned_array,
    pinned_array_like,
    to_device,
)
from ._driver import auto_synchronize, defer_cleanup
from ._events import Events, events
from ._foreign import as_array, is_cuda_array
from ._handle import Handle
from ._ipc import IpcArrayHandle, IpcHandle, MemoryPointer, get_ipc_handle, open_ipc_array
from ._libraries import DeviceWarning, ReadOnlyWarning
from ._show import ls, pools, streams

_core._register(Array, Buffer, _dtype, _driver, _asyncio, _libraries)
_Mapping.register(Buffer)
# Before the driver's own atexit handler: no CUDA call is allowed after it.
_atexit.register(_core._disconnect)
_atexit.register(_core._report_unpublished)
# An orderly end of the program is the end of its streams, and not the death of their producer.
_atexit.register(_core._close_streams)

connect = Connection

__version__ = _core.library_version

__all__ = [
    "AccessDenied",
    "Array",
    "BadArgument",
    "BadContents",
    "Buffer",
    "BufferInfo",
    "Connection",
    "DaemonGone",
    "DeviceFailed",
    "DeviceWarning",
    "Dirty",
    "DriverError",
    "Error",
    "Event",
    "Events",
    "Exists",
    "ForkError",
    "Frame",
    "GraphFrame",
    "Handle",
    "Holder",
    "InUse",
    "IpcArrayHandle",
    "IpcHandle",
    "LayoutError",
    "LimitReached",
    "LoggedEvent",
    "Mapped",
    "MemoryPointer",
    "NotFound",
    "NotKeptWarning",
    "NotPublished",
    "NotSupported",
    "OutOfMemory",
    "PoolFull",
    "PoolInfo",
    "ProducerDied",
    "ReadOnly",
    "ReadOnlyWarning",
    "Reader",
    "ReaderDropped",
    "Record",
    "StateError",
    "Status",
    "Stream",
    "StreamEnded",
    "StreamInfo",
    "StreamReader",
    "StreamStats",
    "Timeout",
    "TooLarge",
    "UnpublishedWarning",
    "Usage",
    "Watch",
    "as_array",
    "auto_synchronize",
    "clean",
    "connect",
    "create",
    "create_like",
    "create_many",
    "defer_cleanup",
    "events",
    "flush",
    "flush_cleanup",
    "follow",
    "get_ipc_handle",
    "is_cuda_array",
    "load",
    "ls",
    "mapped",
    "mapped_array",
    "mapped_array_like",
    "open",
    "open_async",
    "open_ipc_array",
    "open_many",
    "open_or_create",
    "pending_cleanup",
    "pinned",
    "pinned_array",
    "pinned_array_like",
    "pools",
    "pull",
    "pull_wait",
    "rename",
    "save",
    "set_cleanup_limits",
    "set_timeout",
    "stat",
    "status",
    "stream",
    "streams",
    "to_device",
    "unlink",
    "verify",
    "wait",
    "wait_async",
    "watch",
]


if _TYPE_CHECKING:
    from ._cuda_core import MemoryResource as MemoryResource
else:

    def __getattr__(name: str) -> object:
        """Imports cuda.core only for MemoryResource. So __all__ does not have it."""
        if name == "MemoryResource":
            try:
                from ._cuda_core import MemoryResource
            except ModuleNotFoundError as e:
                raise ImportError(f"gpushm.MemoryResource needs cuda.core (pip install cuda-core): {e}") from e

            return MemoryResource
        raise AttributeError(f"module 'gpushm' has no attribute {name!r}")


def _has_cuda_core() -> bool:
    from importlib.util import find_spec

    try:
        return find_spec("cuda.core") is not None
    except ModuleNotFoundError:
        return False


def __dir__() -> list[str]:
    """MemoryResource is among them only if it can be imported: help() takes all that is here."""
    names = [*__all__, *(name for name in globals() if name.startswith("__"))]
    return sorted([*names, "MemoryResource"] if _has_cuda_core() else names)
