# SPDX-License-Identifier: MIT
"""share(): equal parameters of modules of many processes get the same memory.

It is called when a module has been loaded, and its parameters are in the process's own memory. The first process
publishes them, under a name that follows from their names, shapes, dtypes and some of their bytes. The others compare
theirs with those, bit by bit, and take the shared memory for what is equal.
"""

from __future__ import annotations

import errno
import hashlib
import os
from typing import TYPE_CHECKING, Any

import torch

from .. import _core, _libraries, _models
from .. import torch as gpushm_torch
from ..safetensors import FallbackWarning, _file
from ..torch._attach import slots_of
from ..torch._suspend import is_in, spans
from ..torch._tensors import tensors_of

if TYPE_CHECKING:
    from .._typing import Buffer

_SAMPLES = 32  # bytes of a tensor that are a part of the name
_PIECE = 64 << 20


def prefix() -> str:
    """Of the names of buffers."""
    return os.environ.get("GPUSHM_SHARE_NAME") or "~/share"


def options() -> dict[str, Any]:
    """Of buffers on the host."""
    how = _file.options()
    return {"pool": None, "mode": how.mode, "gid": None, "transient": not how.keep}


def has_shared(module: torch.nn.Module) -> bool:
    """Whether a parameter of the module is in memory that others share."""
    ours = spans(_core._opened())
    return any(is_in(ours, tensor) or _is_mapped(tensor) for tensor in module.parameters())


def share(module: torch.nn.Module) -> None:
    """Gives the module's parameters shared memory. Warns once if some can't have it."""
    ours = spans(_core._opened())
    places: dict[torch.device, dict[str, torch.nn.Parameter]] = {}
    seen = set()
    for slot in slots_of(module):
        tensor = slot.tensor
        if not slot.is_parameter or id(tensor) in seen or not _is_own(tensor, ours):
            continue
        seen.add(id(tensor))
        kinds = {type(tensor), type(tensor.data)} - {torch.nn.Parameter, torch.Tensor}
        if kinds:
            kind = kinds.pop().__name__
            _say(module, slot.name, f"it is a {kind}, and what shares is a plain tensor: load it without quantisation")
        elif tensor.device.type not in ("cpu", "cuda"):
            _say(module, slot.name, f"gpushm has no memory on {tensor.device}: the CPU and GPUs of CUDA share")
        else:
            places.setdefault(tensor.device, {})[slot.name] = tensor
    for device, parameters in places.items():
        try:
            _share(module, device, parameters)
        except (_core.Error, TypeError) as error:
            _say(module, next(iter(parameters)), f"{error}")


def _say(module: torch.nn.Module, name: str, why: str) -> None:
    what = f"{name!r} of {type(module).__name__}"
    _libraries.say(("share", what), f"{what} is not shared with other processes: {why}.", FallbackWarning, 2)


# ---- where a tensor is ----


def _is_mapped(tensor: torch.Tensor) -> bool:
    """Whether it is in a file that torch.load(mmap=True) has mapped, and so in the page cache."""
    return tensor.device.type == "cpu" and tensor.layout == torch.strided and bool(tensor.untyped_storage().filename)


def _is_own(tensor: torch.Tensor, ours: list[tuple[int, int, Buffer]]) -> bool:
    """Whether it has memory that no other process has."""
    if tensor.is_meta or tensor.numel() == 0 or is_in(ours, tensor) or _is_mapped(tensor):
        return False
    # What share_memory() has moved may be written to by other processes.
    return not (tensor.device.type == "cpu" and tensor.is_shared())


# ---- the buffer ----


def _share(module: torch.nn.Module, device: torch.device, parameters: dict[str, torch.nn.Parameter]) -> None:
    gpu = device.index if device.type == "cuda" else None
    name = f"{prefix()}/{type(module).__name__}-{_key(parameters)}"
    buffer = _buffer(name, {key: parameter.detach() for key, parameter in parameters.items()}, gpu)
    for (key, parameter), shared in zip(parameters.items(), tensors_of(buffer, list(parameters)), strict=True):
        if _is_equal(shared, parameter.detach()):
            parameter.data = shared
        else:
            _say(module, key, f"another process has other values under {buffer.name}: they are random, or were changed")
    if gpu is not None:
        torch.cuda.empty_cache()  # else PyTorch keeps from other processes what has become free


def _key(parameters: dict[str, torch.nn.Parameter]) -> str:
    found = hashlib.sha256()
    for name, parameter in parameters.items():
        bits = _bits(parameter.detach())
        sample = bits[:: max(1, bits.numel() // _SAMPLES)]
        found.update(repr((name, parameter.dtype, parameter.shape, parameter.stride(), sample.tolist())).encode())
    return found.hexdigest()[:16]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Numbers that are equal only if all bits are: NaN is not equal to itself."""
    return tensor.contiguous().view(-1).view(torch.uint8)


def _is_equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Piece by piece: on a GPU PyTorch makes a tensor of what it has compared."""
    pieces = zip(_bits(one).split(_PIECE), _bits(other).split(_PIECE), strict=False)
    return one.shape == other.shape and all(torch.equal(a, b) for a, b in pieces)


def _buffer(name: str, tensors: dict[str, torch.Tensor], gpu: int | None) -> Buffer:
    """The buffer of that name, which has those tensors if no process has published it."""
    while (found := _opened(name, gpu)) is None:
        with _models.turn(name, None):
            if _models.published(name) is None:
                how = options() | {"pool": _models.pool_of(gpu, _file.options().pool)}
                # A transient buffer ends with its last user.
                with gpushm_torch.publish(name, tensors, digest=False, **how):
                    if found := _opened(name, gpu):
                        return found
    return found


def _opened(name: str, gpu: int | None) -> Buffer | None:
    """The buffer of that name; None: it is not published."""
    try:
        info = _core.stat(name)
    except _core.NotFound:
        return None
    if info.state == "filling":
        return None
    if info.state != "sealed" or not _models.is_trusted(info.uid):
        why = f'buffer "{name}" is {info.state}, and of uid {info.uid}: another process could change it'
        raise _core.AccessDenied(errno.EACCES, why)
    return _models.reopened(name, info.id, "c" if gpu is None else "r", gpu)
