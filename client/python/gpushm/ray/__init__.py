# SPDX-License-Identifier: MIT
"""GPU and host memory for Ray: objects that outlive their actors, and one copy of a model's weights a node.

    gpushm.ray.register()                                  # first: decorators ask for the name

    @ray.remote
    class Sampler:
        @ray.method(tensor_transport="gpushm")             # ray.put(x, _tensor_transport="gpushm") does it, too
        def sample(self): return torch.randn(1 << 20, device="cuda")

        def __init__(self): self.weights = gpushm.ray.weights("llama", load)

An object of Ray Direct Transport is tensors in a buffer of the node's gpushmd(8), which readers map. The source copies
them once, or not at all where they lie in a buffer: empty(), gpushm.torch.memory(), another object's. GPU work is in
order, because publishing waits for what the source has queued. Other nodes get an object by relays, once a node.

An object lives until Ray's reference count of it is zero, whatever became of its actor. A small process of each node,
the holder, has a lease of it for the process that owns its ObjectRef. That process's copy of the metadata, which Ray
drops at zero, is what tells the holder; where the owner or the cluster dies, its connection ends, and the memory is
freed. gpushm.ray._holder has the details; gpushm-fleets(7) has the environment variables.

`import gpushm` does not import this module, and so does not import Ray.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

__all__ = ["empty", "forget", "register", "weights"]


def register() -> None:
    """Registers two transports: "gpushm" for PyTorch's tensors, or for NumPy's arrays where there is no PyTorch, and
    "gpushm_numpy" for NumPy's.

    Call it before the decorators that name one, in the process that makes the actors: Ray carries it to them.

    Arrays of NumPy that are received are read-only. PyTorch's tensors on the CPU may be written to, which nobody else
    sees; on a GPU a write is an illegal memory access, as gpushm.torch has it.
    """
    from . import _transport

    _transport.register()


def empty(shape: int | tuple[int, ...], dtype: Any = "float32") -> Any:
    """An array in memory of this node, whose values are whatever was there: returned or put as an object it is not
    copied. NumPy's, or with a dtype of torch's a tensor on the CPU.

    Whoever writes to it afterwards changes the object. The memory is used again when the array and the object have
    ended.
    """
    from . import _store

    return _store.empty(shape, dtype)


def weights(
    name: str, load: Callable[[], Mapping[str, Any]], *, replace: bool = False
) -> Mapping[str, Any]:
    """The tensors of that name, from the one copy that this node has of them, read-only; all its processes share it.

    load: makes them, a dict of names to tensors of PyTorch or arrays of NumPy. Of all processes of the cluster one
    calls it. Other nodes get them from a node that has them, by relays and in a tree; a process that comes later
    attaches. An error of load() is raised where it was called, and another process that waits tries its own.

    replace: load a new generation. The nodes that have the old one get it, and so do later calls of weights();
    those who use the old one keep it.

    The copies stay until forget(), or until the cluster ends.
    """
    from . import _weights

    return _weights.weights(name, load, replace=replace)


def forget(name: str) -> None:
    """Frees the weights of that name, on each node when its processes have let go of them."""
    from . import _weights

    _weights.forget(name)
