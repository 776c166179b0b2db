# SPDX-License-Identifier: MIT
"""Tensors of PyTorch over the arrays of a buffer, and the mapping that gpushm.torch.open() returns."""

from __future__ import annotations

import errno
from collections.abc import ItemsView, Iterator, Mapping, ValuesView
from contextlib import suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from .. import _core, _dtype, _foreign

if TYPE_CHECKING:
    from .._typing import Array, Buffer

# The loader's array for metadata that is too large for an attribute. It is no tensor of the model.
METADATA = "__metadata__"


@cache
def dtype_of(name: str) -> torch.dtype | None:
    """PyTorch's dtype of gpushm's name; None: PyTorch has none, or not in this version."""
    found = getattr(torch, name[:-2] + "_x2" if name.endswith("x2") else name, None)
    return found if isinstance(found, torch.dtype) else None


def name_of(tensor: torch.Tensor) -> str:
    """Gpushm's name of a tensor's dtype. TypeError: it has none."""
    name = _dtype.encode(tensor.dtype)[0]
    # torch.uint4 and the like have a byte for each number, and gpushm packs them.
    if _core._dtype_bits(name) != 8 * tensor.element_size():
        raise TypeError(f"{tensor.dtype} has {tensor.element_size()} bytes for each element, gpushm's {name} less: "
                        "use view(torch.uint8)")  # fmt: skip
    return name


def _taken(array: Array) -> torch.Tensor:
    """PyTorch does not take pinned memory as such, but as the CPU's."""
    place = (1, 0) if array.kind == "pinned" else None
    return from_dlpack(array.__dlpack__(max_version=(1, 0), dl_device=place))


def tensor_of(array: Array) -> torch.Tensor:
    """A tensor over the array's memory, which it keeps open. TypeError: PyTorch has no such dtype."""
    try:
        return _taken(array)
    except (BufferError, RuntimeError, ValueError):
        dtype = dtype_of(array.dtype_name)
        if dtype is None:
            raise TypeError(
                f"array {array.array_name!r} of buffer {array.name!r} has dtype {array.dtype_name}, which this "
                "version of PyTorch has not: take its bytes with buffer[...].view('uint8')"
            ) from None
        if dtype == getattr(torch, "uint8", None) or array.itemsize == 0:
            raise
    # PyTorch has the dtype, but no DLPack code for it: as bytes, of which the last axis is one element.
    raw = array.buffer.array((*array.shape, array.itemsize), "uint8", strides=(*array.strides, 1), offset=array.offset)
    return _taken(raw).view(dtype).squeeze(-1)


def tensors_of(buffer: Buffer, names: list[str]) -> Iterator[torch.Tensor]:
    """Tensors over those arrays: made all at once, in a fifth of the time, unless PyTorch needs something for one of
    them. As Buffer.tensors(), without its warning that they are read-only.
    """
    api = _foreign.exchange_apis().get(torch.Tensor)
    if api is not None and names:
        with suppress(BufferError, RuntimeError):
            return iter(_core._tensors(buffer, names, api))
    return (tensor_of(buffer[name]) for name in names)


def ordinal_of(device: Any) -> Any:
    """A device as open_many() takes it, of an int, a str, a torch.device, or None for the buffer's own."""
    if device is None or isinstance(device, int):
        return device
    if device == "current":
        return device
    found = torch.device(device)
    if found.type == "cpu":
        return None
    if found.type != "cuda":
        raise ValueError(f"device is a CUDA device, 'current', 'cpu' or None, not {device!r}")
    return "current" if found.index is None else found.index


def open_buffer(name: str, timeout: float | None, device: Any) -> Buffer:
    """Opens a buffer for reading. device: as ordinal_of(), and "cpu" for host pools only."""
    buffer = _core.open_many(name, "r", timeout, device=ordinal_of(device))
    if device is not None and str(device).startswith("cpu") and buffer.host_ptr is None:
        where = buffer.pool
        buffer.close()
        raise _core.NotSupported(
            errno.ENOTSUP, f'buffer "{name}" is in GPU memory (pool "{where}"): device="cpu" needs a host pool'
        )
    return buffer


class _Items(ItemsView[str, "torch.Tensor"]):
    _mapping: Tensors

    def __iter__(self) -> Iterator[tuple[str, torch.Tensor]]:
        names = list(self._mapping)
        return zip(names, tensors_of(self._mapping.buffer, names), strict=True)


class _Values(ValuesView["torch.Tensor"]):
    _mapping: Tensors

    def __iter__(self) -> Iterator[torch.Tensor]:
        return tensors_of(self._mapping.buffer, list(self._mapping))


class Tensors(Mapping[str, "torch.Tensor"]):
    """The tensors of a buffer by their names. Each is made when it is asked for, without a copy; items() and values()
    make all.

    All of them share one lease, which ends with close(), with the end of a with block, or with the last of this object
    and its tensors. The memory of a sealed buffer is read-only, which PyTorch does not know: a write to a tensor ends
    the process with SIGSEGV on the host; on a GPU it is an illegal memory access, after which the process can't use the
    GPU any more. clone() makes a tensor that can be written to.
    """

    __slots__ = ("_buffer",)

    def __init__(self, buffer: Buffer) -> None:
        """Takes an open buffer."""
        self._buffer: Buffer = buffer

    @property
    def buffer(self) -> Buffer:
        """The gpushm.Buffer, with its state, attributes and pool."""
        return self._buffer

    def __getitem__(self, name: str) -> torch.Tensor:
        if name == METADATA:
            raise KeyError(name)
        return tensor_of(self._buffer[name])

    def __contains__(self, name: object) -> bool:
        return name != METADATA and name in self._buffer

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._buffer if name != METADATA)

    def items(self) -> ItemsView[str, torch.Tensor]:
        """All names and tensors. A loop over them makes the tensors at once, which takes a fifth of the time."""
        return _Items(self)

    def values(self) -> ValuesView[torch.Tensor]:
        """All tensors, as items()."""
        return _Values(self)

    def __len__(self) -> int:
        return len(self._buffer) - (METADATA in self._buffer)

    def close(self) -> None:
        """Ends the lease. InUse: tensors are alive, which keep it until the last one ends."""
        self._buffer.close()

    def __enter__(self) -> Tensors:
        self._buffer.__enter__()
        return self

    def __exit__(self, *raised: object) -> None:
        self._buffer.__exit__(*raised)

    def __repr__(self) -> str:
        if self._buffer.closed:
            return "<gpushm.torch.Tensors, closed>"
        return f"<gpushm.torch.Tensors of {self._buffer.name!r}: {len(self)} in pool {self._buffer.pool!r}>"
