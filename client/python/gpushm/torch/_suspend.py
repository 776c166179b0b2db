# SPDX-License-Identifier: MIT
"""suspend() and resume(): a module lets go of the memory of its tensors, and comes back.

PyTorch does not say which Buffer a tensor came from, but its address does, also while the Buffer is suspended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING

from .. import _core
from ._attach import slots_of
from ._layout import why_not

if TYPE_CHECKING:
    import torch

    from .._typing import Buffer


def suspend(module: torch.nn.Module, *, idle: bool = False) -> None:
    """Lets go of the memory of all buffers that the module's tensors are in, until resume(): Buffer.suspend().

    The module, its tensors and captured CUDA graphs stay, and nobody may use them meanwhile: on a GPU that is an
    illegal memory access, after which the process can't use the GPU any more; on the host the process ends with
    SIGSEGV. That holds for all modules of the process whose tensors are in these buffers. Tensors that are in no
    buffer stay as they are.

    First waits for all work that this process has queued on the buffers' GPUs; idle: none that uses them is queued.
    After an error nothing is suspended. Errors: ValueError (no tensor is in a buffer), and those of Buffer.suspend().
    """
    buffers = [buffer for buffer in buffers_of(module) if not buffer.away]
    try:
        for buffer in buffers:
            buffer.suspend(idle=idle)
    except BaseException:
        for buffer in buffers:
            buffer.resume()
        raise


def resume(module: torch.nn.Module, timeout: float | None = None) -> int:
    """Maps the memory again, at the same addresses: Buffer.resume() of each buffer. timeout: seconds for each.

    Returns the largest of their results. After an error some may be suspended still: call it again. Errors: those of
    Buffer.resume().
    """
    return max(buffer.resume(timeout) for buffer in buffers_of(module))


@contextmanager
def suspended(module: torch.nn.Module, *, idle: bool = False, timeout: float | None = None) -> Iterator[None]:
    """A `with` block in which the module is suspended: suspend(), and at its end resume()."""
    suspend(module, idle=idle)
    try:
        yield
    finally:
        resume(module, timeout)


def buffers_of(module: torch.nn.Module) -> list[Buffer]:
    """Those that the module's tensors are in; a buffer that the process has open twice, twice."""
    addresses = sorted(slot.tensor.data_ptr() for slot in slots_of(module) if why_not(slot.tensor) is None)
    found = []
    for start, end, buffer in sorted(spans(_core._opened()), key=itemgetter(0)):
        first = bisect_left(addresses, start)
        if first < len(addresses) and addresses[first] < end:
            found.append(buffer)
    if not found:
        raise ValueError("no tensor of the module is in a buffer that this process has open")
    return found


def spans(buffers: Iterable[Buffer]) -> list[tuple[int, int, Buffer]]:
    """The addresses of their memory, also while it is suspended."""
    return [(at, at + buffer.nbytes, buffer) for buffer in buffers for at in set(buffer._starts) if at]


def is_in(places: list[tuple[int, int, Buffer]], tensor: torch.Tensor) -> bool:
    """Whether the tensor lies in one of the spans."""
    return why_not(tensor) is None and any(start <= tensor.data_ptr() < end for start, end, _ in places)
