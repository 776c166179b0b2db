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

from ._store import empty
from ._transport import register
from ._weights import forget, weights

__all__ = ["empty", "forget", "register", "weights"]
