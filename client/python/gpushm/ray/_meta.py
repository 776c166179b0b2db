# SPDX-License-Identifier: MIT
"""What Ray carries from the process that made an object to those that read it: where the object is, and who holds it.

Ray calls a transport back in the source actor only. But it keeps the metadata in the process that owns the ObjectRef
for exactly as long as the reference count is above zero: so the owner's copy of the metadata is its hold on the object.
It tells the holder of the source's node when it is made and when it ends; a connection tells it of the owner's death.

    source            pickles its metadata once, for the owner, and forgets it; ray.put() keeps it, as the owner itself
    owner             unpickles that: it holds the object; what it pickles, for readers and borrowers, holds nothing
"""

from __future__ import annotations

import uuid
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ray.experimental.rdt.tensor_transport_manager import TensorTransportMetadata

from . import _link
from ._store import Piece, Placed


class Hold:
    """A hold of this process."""

    __slots__ = ("_end", "_key", "_link")

    def __init__(self, link: _link.Link, key: str, end: str) -> None:
        """end: what the holder is told when this object ends."""
        self._link, self._key, self._end = link, key, end

    def __del__(self) -> None:
        with suppress(Exception):  # at the end of the process its modules are gone
            self._link.say(self._end, self._key)


@dataclass
class Metadata(TensorTransportMetadata):
    """Where an object is. buffer: None for one without tensors."""

    buffer: str | None = None
    key: str = field(default_factory=lambda: uuid.uuid4().hex)
    pieces: list[Piece] = field(default_factory=list)
    node: str = ""
    is_slab: bool = False
    gpu: int | None = None  # of the source, by its own numbers
    address: _link.Address = ("", 0, "")
    relay: str = ""
    hold: Hold | None = field(default=None, repr=False, compare=False)
    fresh: bool = False

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {name: value for name, value in self.__dict__.items() if name not in ("hold", "fresh")}
        fresh, self.fresh = self.fresh, False
        return revived, (fields, fresh)

    def held(self, local: _link.Link, is_owner: bool) -> None:
        """Called by its maker, when the holder has the buffer."""
        self.fresh = not is_owner
        self.hold = Hold(local, self.key, "end" if is_owner else "spent")


def revived(fields: dict[str, Any], fresh: bool) -> Metadata:
    """Metadata in another process."""
    made = Metadata(**fields)
    if fresh and made.buffer is not None:
        link = _link.to(made.address)
        link.say("hold", made.key)
        made.hold = Hold(link, made.key, "drop")
    return made


def described(placed: Placed, tensors: list[Any], **more: Any) -> Metadata:
    """The metadata of tensors that were placed."""
    device = getattr(tensors[0], "device", None)
    return Metadata(
        tensor_meta=[(t.shape, t.dtype) for t in tensors],
        tensor_device=getattr(device, "type", "cpu"),
        buffer=placed.buffer,
        pieces=placed.pieces,
        is_slab=placed.slab is not None,
        gpu=getattr(device, "index", None),
        **more,
    )
