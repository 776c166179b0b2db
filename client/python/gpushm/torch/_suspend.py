# SPDX-License-Identifier: MIT
"""suspend(), resume() and refresh(): a module lets go of the memory of its tensors, comes back, and goes on with the
newest generation of a name, between two of its forwards.

PyTorch does not say which Buffer a tensor came from, but its address does, also while the Buffer is suspended.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import torch

from .. import _core
from . import _tensors
from ._attach import Slot, attach, slots_of
from ._layout import why_not

if TYPE_CHECKING:
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
    return _buffers_of(_with_memory(module))


def _with_memory(module: torch.nn.Module) -> list[Slot]:
    return [slot for slot in slots_of(module) if why_not(slot.tensor) is None]


def _buffers_of(slots: list[Slot]) -> list[Buffer]:
    addresses = sorted(slot.tensor.data_ptr() for slot in slots)
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
    return why_not(tensor) is None and _lies_in(places, tensor)


def _lies_in(places: list[tuple[int, int, Buffer]], tensor: torch.Tensor) -> bool:
    return any(start <= tensor.data_ptr() < end for start, end, _ in places)


def refresh(module: torch.nn.Module, name: str, *, idle: bool = False, timeout: float | None = None) -> bool:
    """Gives the module the tensors of the buffer that has the name now. False: it has them already.

        gpushm.torch.publish("policy", model, replace=True)    # the trainer, after a step

        gpushm.torch.refresh(model, "policy")                  # each worker, between two forwards

    No tensor is copied or sent. A generation of the same layout comes to the same addresses: tensors, their views and
    captured CUDA graphs stay, and so do other modules of this process over the same memory, which follow, too. One of
    another layout, as another pool's, becomes new tensors, which are checked as by attach(); other modules keep the old
    ones. After a rollback by `gpushmctl mv` the next call takes the former generation. The module
    keeps what it has if no buffer has the name, or if that one is being filled.

    What attach(writable=) has copied, and other tensors of the module that are not shared and have a name in the
    buffer, get the new values.

    First waits for all work that this process has queued on the buffer's GPU; idle: none that uses the module is
    queued. No other thread may use the module meanwhile. timeout: seconds to wait for memory that is evicted.

    Errors: LayoutError (the module stays as it was), otherwise those of suspend(), resume() and attach().
    """
    def attach_again(device: Any, own: list[Slot]) -> None:
        with _tensors.open_buffer(name, timeout, device) as new:
            copied = [slot.name for slot in own if slot.name in new]
            attach(name, module, device=device, writable=copied, timeout=timeout)

    try:
        there = _core.stat(name)
    except _core.NotFound:
        return False
    return there.state != "filling" and refreshed(module, there, attach_again, idle=idle, timeout=timeout)


def refreshed(
    module: torch.nn.Module,
    there: Any,
    attach_again: Callable[[Any, list[Slot]], None],
    *,
    whole: bool = False,
    idle: bool = False,
    timeout: float | None = None,
) -> bool:
    """refresh() to what stat() has found. attach_again: takes a generation of another layout, by its device and the
    slots that share nothing. whole: all buffers that the module is in are of that name, or it is attached again.
    """
    slots = _with_memory(module)
    ours = _buffers_of(slots)
    of_name = [buffer for buffer in ours if buffer.name == there.name]
    every = all if whole else any
    if every(buffer.id == there.id and not buffer.away for buffer in ours):
        return False
    places = spans(ours)
    own = [slot for slot in slots if not _lies_in(places, slot.tensor)]
    follows = of_name == ours if whole else bool(of_name)
    follows = follows and all(buffer.digest == there.digest for buffer in of_name)
    if follows and _followed(of_name, idle, timeout):
        _update(own, of_name[0])
    else:
        attach_again(torch.device("cuda", ours[0].device) if ours[0].device is not None else "current", own)
    return True


def _followed(buffers: list[Buffer], idle: bool, timeout: float | None) -> bool:
    """By a suspend and a resume, which means the name. False: another layout by now, or the pool can't suspend."""
    try:
        for buffer in buffers:
            if not buffer.away:
                buffer.suspend(idle=idle)
    except _core.NotSupported:
        return False
    try:
        for buffer in buffers:
            buffer.resume(timeout)
    except _core.BadContents:
        return False
    return True


def _update(own: list[Slot], buffer: Buffer) -> None:
    with torch.no_grad():
        for slot in own:
            if slot.name in buffer and slot.tensor.numel():
                slot.tensor.copy_(_tensors.tensor_of(buffer[slot.name]))
