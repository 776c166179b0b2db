# SPDX-License-Identifier: MIT
"""Replicas of Ray Serve answer with one model, of which each node has one copy.

    python ray_serve.py          # where $RAY_ADDRESS is a cluster whose nodes have a gpushmd; else on this machine

The first replica loads the weights, the others of its node attach, and so does a replica that Serve adds or restarts.
With PyTorch load() returns a state dict, and the replica gives it to model.load_state_dict(weights, assign=True).
"""

from __future__ import annotations

import os

import gpushm
import gpushm.ray
import numpy as np
import ray
from ray import serve

WIDTH = 1024


def load() -> dict[str, np.ndarray]:
    """Of all replicas one calls this."""
    random = np.random.default_rng(0)  # a real model reads a file here
    return {f"layer{i}": random.standard_normal((WIDTH, WIDTH), "f4") / WIDTH for i in range(4)}


@serve.deployment(num_replicas=4, ray_actor_options={"num_cpus": 0})
class Model:
    """A replica, which is a process."""

    def __init__(self) -> None:
        self.weights = gpushm.ray.weights("ray_serve", load)

    def __call__(self, value: float) -> tuple[int, float]:
        x = np.full(WIDTH, value, "f4")
        for layer in self.weights.values():
            x = np.maximum(x @ layer, 0)
        return os.getpid(), float(x.sum())


def main() -> None:
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    try:
        handle = serve.run(Model.bind(), name="ray_serve", route_prefix=None)  # without one it answers no HTTP
        answers = [response.result() for response in [handle.remote(1.0) for _ in range(200)]]
        (model,) = (buffer for buffer in gpushm.ls("ray/") if buffer.nbytes >= 4 * WIDTH * WIDTH * 4)
        replicas = len({pid for pid, _ in answers})
        print(f"{replicas} replicas answered with one copy of {model.nbytes >> 20} MiB on this node")
        assert len({answer for _, answer in answers}) == 1
    finally:
        serve.shutdown()
        gpushm.ray.forget("ray_serve")


if __name__ == "__main__":
    main()
