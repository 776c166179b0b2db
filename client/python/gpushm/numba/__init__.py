# SPDX-License-Identifier: MIT
"""The names of numba.cuda for programs that share what they make: `from gpushm import numba as cuda`."""

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
