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

Begin with create, open, Array, unlink, ls, wait, stream, follow, load and Error. gpushm.errors has the exceptions,
gpushm.info the records that are shown, gpushm.types what an annotation names, gpushm.numba the names of numba.cuda.
"""

import atexit as _atexit
from collections.abc import Mapping as _Mapping
from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import _asyncio, _core, _driver, _dtype, _libraries, _meta, _unpublished
from . import errors as errors
from ._array import Array, Buffer
from ._asyncio import open_async, wait_async
from ._load import Transport, pull_wait

from ._core import (  # isort: skip
    Error, clean, create, create_many, evict, flush, follow, load, ls, make_twin, may_park, open, open_many,
    open_or_create, pools, pull, rename, save, set_keep, set_timeout, stat, status, stream, streams, unlink,
    verify, wait, watch,
)
from ._events import events
from ._foreign import as_array, create_like
from ._yields import use, yields

if _TYPE_CHECKING:
    from os import PathLike

    from . import info as info
    from . import numba as numba
    from . import types as types

_core._register(Array, Buffer, _dtype, _driver, _asyncio, _libraries, _meta, _unpublished)
_Mapping.register(Buffer)
# Before the driver's own atexit handler: no CUDA call is allowed after it.
_atexit.register(_core._disconnect)
_atexit.register(_core._report_unpublished)
# An orderly end of the program is the end of its streams, and not the death of their producer.
_atexit.register(_core._close_streams)

__version__ = _core.library_version

__all__ = [
    "Array", "Buffer", "Error", "Transport", "as_array", "clean", "connect", "create", "create_like", "create_many",
    "events", "evict", "flush", "follow", "load", "ls", "make_twin", "may_park", "open", "open_async",
    "open_many", "open_or_create", "pools", "pull", "pull_wait", "rename", "save", "set_keep", "set_timeout",
    "stat", "status", "stream", "streams", "unlink", "use", "verify", "wait", "wait_async", "watch", "yields",
]


def connect(socket: "str | PathLike[str] | None" = None) -> "types.Connection":
    """A Connection to the daemon that listens at that path, whose methods are this module's functions; they use the
    process's common connection.

    None: the first that exists of $GPUSHM_SOCKET, /run/gpushm/gpushmd.sock and the socket of a daemon of one's own.
    Errors: DaemonGone, AccessDenied; Timeout if the daemon does not reply.
    """
    return _core.Connection(socket)


_PLACES = "errors", "info", "types", "numba"


def __getattr__(name: str) -> object:
    """Imports modules of the package when they are asked for, but for errors, which an `except` must find without
    reading a file. The error of a name that has moved says where it is.
    """
    if name in (*_PLACES, "cuda_core", "cupy"):
        return _import_module(f"gpushm.{name}")
    if name == "MemoryResource":
        raise AttributeError("gpushm.MemoryResource is gpushm.cuda_core.DeviceMemoryResource now")
    for place in () if name.startswith("_") else _PLACES:
        if name in _import_module(f"gpushm.{place}").__all__:
            raise AttributeError(f"gpushm.{name} is gpushm.{place}.{name} now")
    raise AttributeError(f"module 'gpushm' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*__all__, *_PLACES, *(name for name in globals() if name.startswith("__"))])
