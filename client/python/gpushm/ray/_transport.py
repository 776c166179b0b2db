# SPDX-License-Identifier: MIT
"""The two transports, as Ray Direct Transport calls them: in the source, in the owner, in each reader.

Ray calls the source alone when an object ends. But it keeps the metadata in the process that owns the ObjectRef for
exactly as long as the reference count is above zero: so the owner's copy of the metadata is its hold on the object. It
tells the holder of the source's node when it is made, and when it ends. The source pickles the metadata once, for the
owner, and forgets it; after ray.put() the source is the owner. What an owner pickles, for readers, holds nothing.
"""

from __future__ import annotations

import errno
import os
import secrets
import weakref
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import ray
from ray.experimental import TensorTransportManager, register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import CommunicatorMetadata, TensorTransportMetadata
from ray.experimental.rdt.util import transport_manager_info

from .. import _core, _load
from . import _holder, _link, _store
from ._store import store

if TYPE_CHECKING:
    from collections.abc import Callable

    from .._typing import Device

RELAY_PORT = 19401
# Ray makes its manager of objects when it is first asked for it, without a lock: two threads of a new actor that ask at
# once have one each, and one waits 60 s for what the other has received. An actor imports this before that.
_MANAGER = ray._private.worker.global_worker.rdt_manager


@dataclass
class Metadata(TensorTransportMetadata):  # type: ignore[misc]
    """Where an object is. buffer: empty for one without tensors. It has no copy in a process: its end counts."""

    buffer: str = ""
    id: int = 0
    key: str = ""
    pieces: list[tuple[str, int]] = field(default_factory=list)
    is_offered: bool = True  # by relays, as it is
    node: str = ""
    address: _link.Address = ("", 0, "")
    relay: str = ""
    names: list[str] = field(default_factory=list)  # of weights
    for_owner: bool = False

    def drop_at_end(self, link: _link.Link) -> None:
        """When this process has let go of it. At the end of the process the connection ends."""
        weakref.finalize(self, link.say, "drop", self.key).atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        fields = self.__dict__ | {"for_owner": False}
        for_owner, self.for_owner = self.for_owner, False
        return _revived, (fields, for_owner)


def _revived(fields: dict[str, Any], is_owner: bool) -> Metadata:
    made = Metadata(**fields)
    if is_owner:
        link = _link.to(made.address)
        link.say("hold", made.key)
        made.drop_at_end(link)
    return made


def relay() -> str:
    """How other nodes ask the relay of this one."""
    return os.environ.get("GPUSHM_RAY_RELAY") or f"{_link.node_address()}:{RELAY_PORT}"


# ---- the source ----


def published(tensors: list[Any], is_owner: bool, sealed: bool = False) -> Metadata:
    """Places the tensors, and gives the buffer to the holder."""
    kinds = set(map(str, {getattr(t, "device", "cpu") for t in tensors}))
    if len(kinds) > 1:
        raise ValueError(f"the tensors of one object are on one device, not on {', '.join(sorted(kinds))}")
    device, key, link = kinds.pop().partition(":")[0], secrets.token_hex(16), _link.here()
    try:
        placed, kept = _kept(link, key, tensors, sealed)
    except _core.NotFound:  # a daemon that was started anew has lost this process's slabs
        placed, kept = _kept(link, key, tensors, sealed)
    host, port, token = kept.split()
    if is_owner:
        link.say("hold", key)
    made = Metadata(
        tensor_meta=[((*t.shape,), t.dtype) for t in tensors], tensor_device=device, buffer=placed.buffer.name,
        id=placed.buffer.id, key=key, pieces=placed.pieces, is_offered=_holder.is_offered(placed.buffer),
        node=ray.get_runtime_context().get_node_id(), address=(host, int(port), token), relay=relay(),
        for_owner=not is_owner,
    )  # fmt: skip
    made.drop_at_end(link)
    return made


def _kept(link: _link.Link, key: str, tensors: list[Any], sealed: bool) -> tuple[_store.Placed, str]:
    try:
        return store.place(link, key, tensors, sealed)
    except BaseException:
        link.say("end", key)
        store.on_word("lost", key)
        raise


def _is_put(obj_id: str) -> bool:
    """Whether this process owns the object: a driver makes none for others, and a task's result is its object 1. The
    first put of another thread looks like a result: then the first process that it is sent to holds it, too.
    """
    is_driver = ray.get_runtime_context().worker.mode != ray.WORKER_MODE
    return is_driver or int.from_bytes(bytes.fromhex(obj_id)[24:28], "little") > 1


# ---- a reader ----

def opened(meta: Metadata, copy_on_write: bool, made_of: Callable[[Any], Any]) -> Any:
    """What is made of all bytes of the object, from another node if this one does not have it."""
    device: Device | None = None if meta.tensor_device == "cpu" else "current"
    access, link = "c" if copy_on_write and not device else "r", _link.here()
    is_here = meta.node == ray.get_runtime_context().get_node_id()
    try:
        return store.read(link, meta.key, (meta.buffer, meta.id) if is_here else None, access, device, made_of)
    except _core.NotFound as e:
        if is_here:
            text = (
                f"object {meta.key} is gone: its owner let it go or died, its source died before its GPU was done, or "
                f"the daemon has lost it ({e.strerror})"
            )
            raise _core.NotFound(errno.ENOENT, text) from None
    copy = f"ray/{meta.key}"
    with _pulled(meta, copy, device) as pulled:
        link.ask("copy", meta.key, copy, *map(str, meta.address))
        return store.read(link, meta.key, (copy, pulled.id), access, device, made_of)


def _pulled(meta: Metadata, copy: str, device: Device | None) -> _core.Buffer:
    name = meta.buffer if meta.is_offered else _link.to(meta.address).ask("seal", meta.key)
    pool = _store.pool((_core._current_device() or 0) if device else None)
    transport = _load.Transport(via="nixl") if os.environ.get("GPUSHM_RAY_VIA") == "nixl" else None
    source = f"{meta.relay}/v1/buffers/{name}" if "://" in meta.relay else f"{meta.relay}/{name}"
    options: dict[str, Any] = {"pool": pool, "mode": _store.mode(), "device": device, "transport": transport}
    try:
        return _core.pull(source, copy, transient=True, if_missing=True, **options)
    except OSError as e:
        if e.errno not in (errno.EHOSTUNREACH, errno.ECONNREFUSED):
            raise
        raise ConnectionError(
            errno.ECONNREFUSED,
            f"the object is on node {meta.node[:8]}, whose relay {meta.relay} does not answer: start gpushm-relay(8) "
            f"there, with offer=ray/* for this node; GPUSHM_RAY_RELAY is how others reach it. gpushm-fleets(7). ({e})",
        ) from e


def views(meta: Metadata, copy_on_write: bool = True) -> list[Any]:
    """Over the buffer's memory, which they keep open: NumPy's arrays, read-only, or PyTorch's tensors. Programs write
    to those on the CPU: they get pages of their own then.
    """
    is_torch = type(meta.tensor_meta[0][1]).__module__ == "torch"

    def made_of(whole: Any) -> list[Any]:
        starts = {name: whole.buffer[name].offset for name in {name for name, _ in meta.pieces}}
        described = zip(meta.tensor_meta, meta.pieces, strict=True)
        return _store.views(whole, ((*what, starts[name] + at) for what, (name, at) in described), is_torch)

    found: list[Any] = opened(meta, copy_on_write and is_torch, made_of)
    return found


# ---- what Ray calls ----


def _yes(*_: Any) -> bool:
    return True


def _nothing(*_: Any) -> None:
    """Readers open what the source has published; what they wait for, a daemon or a relay, has time limits."""


class NumpyTransport(TensorTransportManager):  # type: ignore[misc]
    """NumPy's arrays."""

    tensor_transport_backend = "GPUSHM_NUMPY"
    is_one_sided = can_abort_transport = staticmethod(_yes)
    actor_has_tensor_transport = _yes
    abort_transport = send_multiple_tensors = _nothing

    def get_communicator_metadata(self, src_actor: Any, dst_actor: Any, backend: Any = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> Metadata:
        return published(rdt_object, _is_put(obj_id)) if rdt_object else Metadata(tensor_meta=[])

    def recv_multiple_tensors(
        self, obj_id: str, tensor_transport_metadata: Metadata, communicator_metadata: Any, target_buffers: Any = None
    ) -> Any:
        found = views(tensor_transport_metadata) if tensor_transport_metadata.buffer else []
        for to, tensor in zip(target_buffers or [], found, strict=bool(target_buffers)):
            to[...] = tensor
        return target_buffers or found

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: list[Any]) -> None:
        """The owner's metadata ends as well; this may be sooner."""
        if tensor_transport_meta.buffer:
            _link.here().say("end", tensor_transport_meta.key)


class DefaultTransport(NumpyTransport):
    """PyTorch's tensors, or NumPy's arrays where there is no PyTorch."""

    tensor_transport_backend = "GPUSHM"


def register() -> None:
    """Registers two transports: "gpushm" for PyTorch's tensors, or for NumPy's arrays where there is no PyTorch, and
    "gpushm_numpy" for NumPy's.

    Call it before the decorators that name one, in the process that makes the actors: Ray carries it to them, beside
    their first calls. So an actor that gets a reference within another value calls it, too, before its ray.get().

    Arrays of NumPy that are received are read-only. PyTorch's tensors on the CPU may be written to, which nobody else
    sees; on a GPU a write is an illegal memory access, as gpushm.torch has it.
    """
    import numpy

    default: tuple[list[str], Any] = ["cpu"], numpy.ndarray
    with suppress(ImportError):
        import torch

        default = ["cpu", "cuda"], torch.Tensor
    for transport, (devices, kind) in (NumpyTransport, (["cpu"], numpy.ndarray)), (DefaultTransport, default):
        if transport.tensor_transport_backend not in transport_manager_info:
            register_tensor_transport(transport.tensor_transport_backend, devices, transport, kind)
