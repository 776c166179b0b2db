# SPDX-License-Identifier: MIT
"""The names of numba.cuda for programs that share what they make: `from gpushm import numba as cuda`.

And a memory manager for programs that use Numba (its EMM plugin), which puts Numba's arrays into the daemon's pools:

    NUMBA_CUDA_MEMORY_MANAGER=gpushm.numba python program.py     # the program is not changed; or, before it uses CUDA:

    cuda.set_memory_manager(gpushm.numba.MemoryManager)

From then on cuda.to_device(), cuda.device_array() and the others take their memory from a pool of the daemon. The IPC
handles open in every process of this user, a child or not, and memory that another process has open outlives its maker.

    array = cuda.to_device(numpy.arange(10))
    gpushm.numba.publish(array, "ten")                           # here
    ten = cuda.as_cuda_array(gpushm.open("ten"))                 # any other process

Numba is imported when MemoryManager or publish is first asked for, which Numba itself does.
"""

from typing import TYPE_CHECKING as _TYPE_CHECKING

from .._core import flush_cleanup, pending_cleanup, set_cleanup_limits
from .._create import (
    Mapped,
    mapped,
    mapped_array,
    mapped_array_like,
    pinned,
    pinned_array,
    pinned_array_like,
    to_device,
)
from .._driver import auto_synchronize, defer_cleanup
from .._foreign import is_cuda_array
from .._ipc import IpcArrayHandle, IpcHandle, MemoryPointer, get_ipc_handle, open_ipc_array

__all__ = [
    "IpcArrayHandle", "IpcHandle", "Mapped", "MemoryPointer", "auto_synchronize", "defer_cleanup", "flush_cleanup",
    "get_ipc_handle", "is_cuda_array", "mapped", "mapped_array", "mapped_array_like", "open_ipc_array",
    "pending_cleanup", "pinned", "pinned_array", "pinned_array_like", "set_cleanup_limits", "to_device",
]

if _TYPE_CHECKING:
    from ._manager import MemoryManager as MemoryManager
    from ._manager import MemoryManager as _numba_memory_manager
    from ._manager import publish as publish
else:

    def __getattr__(name: str) -> object:
        if name not in ("_numba_memory_manager", "MemoryManager", "publish"):
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from . import _manager

        return getattr(_manager, name.replace("_numba_memory_manager", "MemoryManager"))
