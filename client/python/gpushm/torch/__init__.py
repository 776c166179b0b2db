# SPDX-License-Identifier: MIT
"""PyTorch modules that processes share: one publishes a module, the others attach theirs to the same memory.

    gpushm.torch.publish("llama", model)                      # one process

    model = gpushm.torch.attach("llama", lambda: Llama(config), timeout=60)  # any other: no copy

    model = gpushm.torch.share("llama", build)                # any of N equal workers: one of them builds it

A published buffer is sealed: nobody writes to it any more. PyTorch does not know that memory is read-only. A write to
an attached tensor ends the process with SIGSEGV on the host; on a GPU it is an illegal memory access, after which that
process can't use the GPU any more. Other processes never see it. attach(writable=[...]) makes copies of what a module
changes.

    with gpushm.torch.suspended(model):                       # gives its GPU memory back while nobody asks it
        ...

    gpushm.torch.yields(model, after=30)                      # or by itself, when it is idle or others need the memory
    with gpushm.use(model):
        model(x)

    gpushm.torch.refresh(model, "policy")                     # between two forwards: what a trainer has published

`import gpushm` does not import this module, and so does not import PyTorch.
"""

from __future__ import annotations

import sys as _sys
from collections.abc import Mapping as _Mapping
from typing import TYPE_CHECKING as _TYPE_CHECKING

try:
    import torch as _torch  # noqa: F401
except ImportError as _e:
    raise ImportError(f"gpushm.torch needs PyTorch: pip install torch ({_e})") from _e

from .. import _core
from .._yields import yields
from . import _attach, _fingerprint, _layout
from ._attach import attach
from ._memory import Memory, memory
from ._share import share
from ._suspend import refresh, resume, suspend, suspended
from ._tensors import Tensors, open_buffer

if _TYPE_CHECKING:
    from os import PathLike

    import torch

    from .._typing import Attrs, Device

__all__ = [
    "Memory", "Tensors", "attach", "load_file", "memory", "open", "publish", "refresh", "resume", "share",
    "suspend", "suspended", "yields",
]


def publish(
    name: str,
    source: torch.nn.Module | _Mapping[str, torch.Tensor],
    *,
    replace: bool = False,
    pool: str | None = None,
    fingerprint: _Mapping[str, str] | None = None,
    digest: bool = True,
    mode: int = 0o600,
    gid: int | None = None,
    transient: bool = False,
    attrs: Attrs | None = None,
    wait: float | None = 0,
) -> Tensors:
    """Copies a module's tensors into a new buffer, and publishes it sealed.

    source: a module, of which all parameters and all buffers are taken, also those that its state_dict() does not have;
    or a state dict. Tied weights, and views of one tensor, share memory in the buffer, too; strides stay. The copies
    come behind what is queued on the current streams of the GPUs that the tensors are on.

    replace: a buffer that has the name loses it in the same moment in which the new one is published; processes that
    are attached to the old one keep it. pool: None is one where the tensors are, on their GPU or on the host.
    fingerprint: more fields that attach() compares, as {"tensor parallel": "3 of 8"}. digest: read the copies back, and
    leave their digest for gpushm.verify() and for relays; False is faster. Otherwise as gpushm.create().

    Returns the tensors in the buffer: a lease, which ends with the object. Errors: TypeError (a tensor that can't be
    shared), ValueError (tensors on several GPUs), and those of create(): Exists, PoolFull, ...
    """
    tensors = _layout.placed(_attach.tensors_of(source))
    if not tensors:
        raise ValueError("there is no tensor to publish")
    regions = _layout.regions(tensors)
    nbytes = 0
    for region in regions:
        nbytes = region.place(nbytes)
    pool = pool or _layout.pool_of(tensors)
    device = _device_of_pool(pool)
    said = _fingerprint.of(source, device, fingerprint)
    buffer = _core.create_many(
        _layout.hidden_name() if replace else name,
        {},
        nbytes=max(nbytes, 1),
        pool=pool,
        mode=mode,
        gid=gid,
        transient=transient,
        attrs=_layout.with_types({**(attrs or {}), _fingerprint.ATTRIBUTE: _fingerprint.encoded(said)}, tensors),
        wait=wait,
        device=None if device < 0 else device,
    )
    try:
        _layout.publish(buffer, name if replace else None, tensors, regions, regions, digest)
    except BaseException:
        buffer.__exit__(*_sys.exc_info())
        raise
    return Tensors(buffer)


def open(name: str, *, device: Device | str | torch.device | None = "current", timeout: float | None = 0) -> Tensors:
    """The tensors of a buffer, by their names, without a copy; each is made when it is asked for. One lease for all.

    device, timeout: as for attach().
    """
    return Tensors(open_buffer(name, timeout, device))


def load_file(filename: str | PathLike[str], device: str | int | torch.device = "cpu") -> dict[str, torch.Tensor]:
    """safetensors.torch.load_file(), with the tensors in memory that all processes of the machine share.

    The first process that asks for the file loads it, the others attach to it: gpushm.safetensors.torch.
    """
    from ..safetensors.torch import load_file

    found: dict[str, torch.Tensor] = load_file(filename, device=device)
    return found


def _device_of_pool(pool: str | None) -> int:
    """The ordinal of the GPU that has the pool; -1: none, or one that this process can't see."""
    for found in _core.pools():
        if found.is_default if pool is None else found.name == pool:
            return int(found.device) if found.device is not None and found.kind in _core._ON_GPU else -1
    return -1
