# SPDX-License-Identifier: MIT
"""Where the tensors of a module lie in a buffer, and the copies that put them there.

Tensors whose memory overlaps (tied weights, views of one tensor) stay together: they form a region, which is in the
buffer once. Strides stay as they are.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from .. import _core
from ._tensors import METADATA, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from .._typing import Attrs, Buffer

_ALIGNMENT = 256  # gpushm's, of arrays in a buffer
_TYPES = "gpushm.types"
_TYPES_MAX = 511  # bytes of that attribute
_ATTRS_MAX = 4096  # bytes of all attributes, with their keys


class Placed(NamedTuple):
    """A tensor and the addresses that its elements are in."""

    name: str
    tensor: torch.Tensor
    dtype: str
    start: int
    end: int

    @property
    def strides(self) -> tuple[int, ...]:
        """In bytes."""
        size = self.tensor.element_size()
        return tuple(n * size for n in self.tensor.stride())

    @property
    def nbytes(self) -> int:
        """Of its elements."""
        return int(self.tensor.numel() * self.tensor.element_size())

    def is_dense(self) -> bool:
        """Whether it has each byte from start to end once, in whatever order of the axes."""
        expected = 1
        for stride, n in sorted(zip(self.tensor.stride(), self.tensor.shape, strict=True)):
            if n > 1:
                if stride != expected:
                    return False
                expected *= n
        return True


class Region:
    """Tensors whose memory overlaps, on one device."""

    __slots__ = ("device", "end", "members", "offset", "start")

    def __init__(self, first: Placed) -> None:
        self.members: list[Placed] = [first]
        self.device: int = device_of(first.tensor)
        self.start: int = first.start
        self.end: int = first.end
        self.offset: int = -1  # in the buffer; -1: it has no place yet

    @property
    def alignment(self) -> int:
        """Of the largest elements."""
        return max(int(one.tensor.element_size()) for one in self.members)

    def place(self, cursor: int) -> int:
        """Puts it behind the cursor, and returns the cursor behind it. Elements stay aligned to their size."""
        cursor = -(-cursor // _ALIGNMENT) * _ALIGNMENT
        self.offset = cursor + self.start % self.alignment
        return self.offset + self.end - self.start


def device_of(tensor: torch.Tensor) -> int:
    """The GPU's ordinal; -1: the CPU."""
    return int(tensor.device.index) if tensor.device.type == "cuda" else -1


def plain(name: str, value: Any) -> torch.Tensor:
    """The tensor as it is in memory. TypeError, which says its name: it is in no memory that can be shared."""
    why = why_not(value)
    if why is not None:
        raise TypeError(f"{name!r} {why}")
    found: torch.Tensor = value.detach().resolve_conj().resolve_neg()
    return found


def why_not(value: Any) -> str | None:
    if not isinstance(value, torch.Tensor):
        return f"is a {type(value).__name__}, not a tensor"
    if isinstance(value, torch.nn.parameter.UninitializedTensorMixin):
        return "is not initialised yet: run the lazy module once"
    if value.is_meta:
        return "is on the meta device and has no values"
    if value.layout != torch.strided:
        return f"has layout {value.layout}: only strided tensors can be shared; to_dense() makes one"
    if value.is_quantized:
        return f"has the quantised dtype {value.dtype}: share its int_repr(), and its scales"
    if value.device.type not in ("cpu", "cuda"):
        return f"is on device {value.device}: gpushm shares memory of CPUs and of CUDA devices"
    if hasattr(value, "__tensor_flatten__"):
        return f"is a {type(value).__name__}, a tensor made of others: share those (DTensor: to_local())"
    return None


def placed(tensors: Mapping[str, Any]) -> list[Placed]:
    """Checks all tensors, and says where they are."""
    found = []
    for name, value in tensors.items():
        if name == METADATA:
            raise ValueError(f"a tensor can't be named {name!r}: that is the metadata's name")
        tensor = plain(name, value)
        try:
            dtype = name_of(tensor)
        except TypeError as e:
            raise TypeError(f"{name!r}: {e}") from None
        start = tensor.data_ptr() if tensor.numel() else 0
        steps = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) if start else -1
        found.append(Placed(name, tensor, dtype, start, start + (steps + 1) * tensor.element_size()))
    return found


def regions(tensors: list[Placed]) -> list[Region]:
    """In the order of their first tensors, so that equal modules have equal layouts. Tensors without elements are in
    none.
    """
    order = {one.name: i for i, one in enumerate(tensors)}
    found: list[Region] = []
    # The widest of those that begin at the same address comes first.
    for one in sorted(tensors, key=lambda p: (device_of(p.tensor), p.start, -p.end)):
        if one.start == one.end:
            continue
        last = found[-1] if found else None
        if last is not None and last.device == device_of(one.tensor) and one.start < last.end:
            last.members.append(one)
            last.end = max(last.end, one.end)
        else:
            found.append(Region(one))
    return sorted(found, key=lambda region: min(order[one.name] for one in region.members))


def described(tensors: Iterable[Placed], found: Iterable[Region]) -> dict[str, tuple[Any, ...]]:
    """Arrays as Buffer.describe() takes them, in the order of the tensors."""
    offsets = {one.name: region.offset + one.start - region.start for region in found for one in region.members}
    return {one.name: (tuple(one.tensor.shape), one.dtype, one.strides, offsets.get(one.name, 0)) for one in tensors}


def types(tensors: Iterable[Placed]) -> str:
    """The attribute "gpushm.types", as gpushm_load() writes it: each type, its tensors and their bytes; the type with
    the most bytes is first. Tensors that begin at one address have their bytes once.
    """
    counts: dict[str, list[int]] = {}
    before = None
    for one in sorted(tensors, key=lambda p: (device_of(p.tensor), p.start, -p.nbytes)):
        place = (device_of(one.tensor), one.start)
        count = counts.setdefault(one.dtype, [0, 0])
        count[0] += 1
        count[1] += 0 if place == before else one.nbytes
        before = place
    order = sorted(counts.items(), key=lambda item: -item[1][1])
    return ", ".join(f"{dtype} {n} {nbytes}" for dtype, (n, nbytes) in order)


def with_types(attrs: Attrs, tensors: Iterable[Placed]) -> Attrs:
    """The attributes, and the types of the tensors if there is room for them."""
    text = types(tensors)
    used = sum(len(_bytes_of(part)) for item in attrs.items() for part in item)
    if len(text) > _TYPES_MAX or used + len(_TYPES) + len(text) > _ATTRS_MAX:
        return attrs
    return {_TYPES: text, **attrs}


def _bytes_of(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def copies(buffer: Buffer, found: Iterable[Region]) -> list[tuple[Any, ...]]:
    """The copies of the regions into the buffer, as _core._copy_many() takes them."""
    made: list[tuple[Any, ...]] = []
    for region in found:
        first = region.members[0]
        if first.end == region.end and first.is_dense():
            # All bytes are the tensor's: one copy, whatever its strides are.
            array = buffer.array((region.end - region.start,), "uint8", offset=region.offset)
            made.append((array, region.start, None, region.device, first.tensor))
        else:
            made.extend(_strided(buffer, region, one) for one in region.members)
    return made


def _strided(buffer: Buffer, region: Region, one: Placed) -> tuple[Any, ...]:
    """A copy of the tensor's elements alone. An axis of stride 0 has one element in memory."""
    shape = tuple(1 if stride == 0 else n for n, stride in zip(one.tensor.shape, one.strides, strict=True))
    offset = region.offset + one.start - region.start
    array = buffer.array(shape, one.dtype, strides=one.strides, offset=offset)
    return array, one.start, one.strides, region.device, one.tensor


def wait_for(devices: Iterable[int]) -> None:
    """Waits for the current streams of those GPUs, on which the tensors may still be computed."""
    for device in devices:
        if device >= 0:
            torch.cuda.current_stream(device).synchronize()


def fill(buffer: Buffer, found: list[Region]) -> None:
    """Copies the regions into the buffer, behind what is queued on the current streams."""
    wait_for({region.device for region in found})
    _core._copy_many(copies(buffer, found), None)


def publish(
    buffer: Buffer, name: str | None, tensors: list[Placed], found: list[Region], outside: list[Region], digest: bool
) -> None:
    """Seals a buffer of these regions, after those outside of it are copied. name: one that it takes over.

    digest: for verify() and relays; not if libgpushm-load is not installed, or the attributes have no room for it.
    """
    buffer.describe(described(tensors, found))
    fill(buffer, outside)
    with suppress(_core.NotSupported, _core.LimitReached):
        if digest:
            _core._verify(buffer, None, True)
    if name is None:
        buffer.publish()
    else:
        buffer.publish_as(name, replace=True)


def hidden_name() -> str:
    """A private name, for a buffer that is published under another one."""
    return f"~/torch-{os.getpid()}-{secrets.token_hex(6)}"


def pool_of(tensors: list[Placed]) -> str | None:
    """A pool where the tensors are: of their GPU, or of the host; None: the daemon's default one. Tensors without
    elements have no say, unless all are such.
    """
    deciding = [one for one in tensors if one.start != one.end] or tensors
    devices = sorted({device_of(one.tensor) for one in deciding} - {-1})
    if len(devices) > 1:
        raise ValueError(
            f"the tensors are on GPUs {', '.join(map(str, devices))}, and a buffer is on one: publish the parts of "
            "each GPU under a name of their own, or choose a pool for all of them with pool="
        )
    if devices:
        return pool_on(devices[0])
    return _pool(lambda pool: pool.kind not in _core._BY_DRIVER)


def pool_on(device: int) -> str:
    """A pool on that GPU. NotFound: that GPU has no pool."""
    found = _pool(lambda pool: pool.kind in _core._ON_GPU and pool.device == device)
    if found is None:
        raise _core.NotFound(2, f"the daemon has no pool on GPU {device} that this process may use: pool= chooses one")
    return found


def _pool(fits: Callable[[Any], bool]) -> str | None:
    found = [pool for pool in _core.pools() if pool.allowed and not pool.failed and fits(pool)]
    found.sort(key=lambda pool: (pool.kind not in _core._READ_ONLY, not pool.is_default))
    return str(found[0].name) if found else None
