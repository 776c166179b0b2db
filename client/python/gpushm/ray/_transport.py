# SPDX-License-Identifier: MIT
"""The two transports, as Ray Direct Transport calls them: in the source, in the owner, in each reader."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any

import ray
from ray.experimental import TensorTransportManager
from ray.experimental.rdt.tensor_transport_manager import CommunicatorMetadata, TensorTransportMetadata

from gpushm import _core, _load

from . import _link, _store
from ._meta import Metadata, described
from ._store import store

if TYPE_CHECKING:
    from collections.abc import Sequence

RELAY_PORT = 19401


def node_address() -> str:
    """The address of this node, as other nodes know it."""
    return str(ray.util.get_node_ip_address())


def local() -> _link.Link:
    """The connection to the holder of this node."""
    return _link.here(node_address(), store.gone)


def relay() -> str:
    """How other nodes ask the relay of this one: HOST:PORT, or a URL."""
    found = os.environ.get("GPUSHM_RAY_RELAY", "")
    return found or f"{node_address()}:{RELAY_PORT}"


def pulled(relay: str, buffer: str, name: str, **options: Any) -> _core.Buffer:
    """A buffer of another node, in this one's memory: of many processes that call this, one pulls it."""
    separator = "/v1/buffers/" if "://" in relay else "/"
    via = _load.Transport(via="nixl") if os.environ.get("GPUSHM_RAY_VIA") == "nixl" else None
    try:
        return _core.pull(f"{relay}{separator}{buffer}", name, if_missing=True, transport=via, **options)
    except ConnectionError as e:
        raise ConnectionError(
            e.errno or errno.ECONNREFUSED,
            f"gpushm: the object is on another node, and its relay {relay} does not answer: start gpushm-relay(8) there, "
            f"with offer=ray/* for this node; GPUSHM_RAY_RELAY says where it listens. See gpushm-fleets(7). ({e})",
        ) from e


class Transport(TensorTransportManager):  # type: ignore[misc]
    """NumPy's arrays."""

    NAME = "GPUSHM_NUMPY"

    @property
    def tensor_transport_backend(self) -> str:
        return self.NAME

    @staticmethod
    def is_one_sided() -> bool:
        return True

    @staticmethod
    def can_abort_transport() -> bool:
        return True

    def actor_has_tensor_transport(self, actor: Any) -> bool:
        return True

    def get_communicator_metadata(self, src: Any, dst: Any, backend: str | None = None) -> CommunicatorMetadata:
        return CommunicatorMetadata()

    def send_multiple_tensors(self, *args: Any) -> None:
        raise NotImplementedError("readers open what the source has published")

    def abort_transport(self, obj_id: str, communicator_metadata: CommunicatorMetadata) -> None:
        """A reader waits for its daemon or a relay, with time limits of their own."""

    # ---- the source ----

    def extract_tensor_transport_metadata(self, obj_id: str, rdt_object: list[Any]) -> TensorTransportMetadata:
        """Places the tensors, and gives them to the holder."""
        if not rdt_object:
            return Metadata(tensor_meta=[])
        kinds = {str(getattr(t, "device", "cpu")) for t in rdt_object}
        if len(kinds) > 1:
            raise ValueError(f"the tensors of one object are on one device, not on {', '.join(sorted(kinds))}")
        link = local()
        placed = store.place(rdt_object)
        made = described(placed, rdt_object, node=ray.get_runtime_context().get_node_id(), relay=relay())
        if placed.slab is not None:
            store.given(made.key, placed.slab)
        try:
            host, port, token = link.ask("keep", made.key, placed.buffer).split()
        except BaseException:
            store.gone(made.key)
            raise
        made.address = host, int(port), token
        made.held(link, _is_put(obj_id))
        return made

    def garbage_collect(self, obj_id: str, tensor_transport_meta: Metadata, tensors: list[Any]) -> None:
        """The owner's metadata ends as well; this is sooner."""
        if tensor_transport_meta.buffer is not None:
            local().say("end", tensor_transport_meta.key)

    # ---- a reader ----

    def recv_multiple_tensors(
        self,
        obj_id: str,
        tensor_transport_metadata: Metadata,
        communicator_metadata: CommunicatorMetadata,
        target_buffers: list[Any] | None = None,
    ) -> list[Any]:
        """Tensors over the source's memory, or copies in the target's."""
        meta = tensor_transport_metadata
        if meta.buffer is None:
            return []
        found = self.views(self._opened(meta), meta)
        if not target_buffers:
            return found
        for to, tensor in zip(target_buffers, found, strict=True):
            self.copy(to, tensor)
        return target_buffers

    def _opened(self, meta: Metadata) -> _core.Buffer:
        assert meta.buffer is not None
        device = None if meta.gpu is None else "current"
        for name in (meta.buffer, f"ray/{meta.key}"):
            try:
                return _core.open_many(name, self.ACCESS if device is None else "r", device=device)
            except _core.NotFound:
                pass
        if meta.node == ray.get_runtime_context().get_node_id():
            raise _core.NotFound(
                errno.ENOENT, f"object {meta.key} is gone: its owner has died, or has let it go, or the daemon has lost it"
            )
        there = _link.to(meta.address).ask("seal", meta.key) if meta.is_slab else meta.buffer
        gpu = None if meta.gpu is None else _core._current_device() or 0
        name = f"ray/{meta.key}"
        with pulled(
            meta.relay, there, name, pool=_store.pool(gpu), transient=True, mode=_store.mode(), device=device
        ):
            local().ask("copy", meta.key, name, *map(str, meta.address), meta.key)
            return _core.open_many(name, self.ACCESS if device is None else "r", device=device)

    ACCESS: Any = "r"

    def views(self, buffer: _core.Buffer, meta: Metadata) -> list[Any]:
        """Arrays over the buffer's memory, which they keep open."""
        import numpy

        bases: dict[str, Any] = {}
        made = []
        for (shape, dtype), piece in zip(meta.tensor_meta, meta.pieces, strict=True):
            if piece.array not in bases:
                bases[piece.array] = numpy.asarray(_bytes_of(buffer, piece.array))
            made.append(numpy.ndarray(shape, dtype, bases[piece.array], piece.offset, piece.strides))
        return made

    def copy(self, to: Any, tensor: Any) -> None:
        to[...] = tensor


class TorchTransport(Transport):
    """PyTorch's tensors. Programs write to tensors on the CPU: they get pages of their own."""

    NAME = "GPUSHM"
    ACCESS = "c"

    def views(self, buffer: _core.Buffer, meta: Metadata) -> list[Any]:
        from gpushm.torch._tensors import tensor_of

        bases: dict[str, Any] = {}
        made = []
        for (shape, dtype), piece in zip(meta.tensor_meta, meta.pieces, strict=True):
            if piece.array not in bases:
                bases[piece.array] = tensor_of(_bytes_of(buffer, piece.array))
            made.append(_tensor(bases[piece.array], shape, dtype, piece))
        return made

    def copy(self, to: Any, tensor: Any) -> None:
        to.copy_(tensor)


class NumpyAsDefault(Transport):
    """As "gpushm" where there is no PyTorch."""

    NAME = "GPUSHM"


def _tensor(base: Any, shape: Any, dtype: Any, piece: _store.Piece) -> Any:
    size = dtype.itemsize
    if piece.strides is None:
        return base[piece.offset : piece.offset + size * shape.numel()].view(dtype).view(shape)
    rest = base[piece.offset :]
    return rest[: len(rest) // size * size].view(dtype).as_strided(shape, [s // size for s in piece.strides])


def _bytes_of(buffer: _core.Buffer, name: str) -> _core.Array:
    array = buffer[name]
    if array.dtype_name == "uint8" and array.ndim == 1:
        return array
    return buffer.array((array.nbytes,), "uint8", offset=array.offset)


def _is_put(obj_id: str) -> bool:
    """Whether this process owns the object: a driver makes none for others, and a task's result is its object 1. A put
    of another thread may look like a result; it is right, too, but a process that it was sent to first may hold it.
    """
    if ray.get_runtime_context().worker.mode != ray.WORKER_MODE:
        return True
    return int.from_bytes(bytes.fromhex(obj_id)[24:28], "little") > 1


def register() -> None:
    """Of each process, once or more often."""
    from ray.experimental import register_tensor_transport
    from ray.experimental.rdt.util import transport_manager_info

    import numpy

    todo: Sequence[tuple[type[Transport], list[str], type]] = [(Transport, ["cpu"], numpy.ndarray)]
    try:
        import torch

        todo = [*todo, (TorchTransport, ["cpu", "cuda"], torch.Tensor)]
    except ImportError:
        todo = [*todo, (NumpyAsDefault, ["cpu"], numpy.ndarray)]
    for transport, devices, kind in todo:
        if transport.NAME not in transport_manager_info:
            register_tensor_transport(transport.NAME, devices, transport, kind)
