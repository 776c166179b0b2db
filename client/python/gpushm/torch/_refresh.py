# SPDX-License-Identifier: MIT
"""refresh(): a module goes on with the newest generation of a name, between two of its forwards."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from .. import _core
from . import _attach, _suspend, _tensors
from ._layout import why_not

if TYPE_CHECKING:
    from .._typing import Buffer


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
    try:
        there = _core.stat(name)
    except _core.NotFound:
        return False
    ours = _suspend.buffers_of(module)
    of_name = [buffer for buffer in ours if buffer.name == name]
    if there.state == "filling" or any(buffer.id == there.id and not buffer.away for buffer in ours):
        return False
    own = _own(module, ours)
    follows = bool(of_name) and all(buffer.digest == there.digest for buffer in of_name)
    if follows and _followed(of_name, idle, timeout):
        _update(own, of_name[0])
        return True
    device = torch.device("cuda", ours[0].device) if ours[0].device is not None else "current"
    with _tensors.open_buffer(name, timeout, device) as new:
        copied = [slot.name for slot in own if slot.name in new]
        _attach.attach(name, module, device=device, writable=copied, timeout=timeout)
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


def _own(module: torch.nn.Module, buffers: list[Buffer]) -> list[_attach.Slot]:
    """What lies in none of the buffers."""
    places = _suspend.spans(buffers)
    slots = [slot for slot in _attach.slots_of(module) if why_not(slot.tensor) is None]
    return [slot for slot in slots if not _suspend.is_in(places, slot.tensor)]


def _update(own: list[_attach.Slot], buffer: Buffer) -> None:
    with torch.no_grad():
        for slot in own:
            if slot.name in buffer and slot.tensor.numel():
                slot.tensor.copy_(_tensors.tensor_of(buffer[slot.name]))
