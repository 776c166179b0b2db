# SPDX-License-Identifier: MIT
"""Objects of Ray that outlive their actor, and weights of which each node has one copy.

    python ray_objects.py        # where $RAY_ADDRESS is a cluster whose nodes have a gpushmd; else on this machine

A sampler makes batches, and trainers of its node read them where they lie. The sampler is killed: the batches stay for
as long as there is a reference to them.
"""

from __future__ import annotations

import os
import signal

import gpushm.ray
import numpy as np
import ray

gpushm.ray.register()


@ray.remote(num_cpus=0)
class Sampler:
    """Makes batches in the node's memory."""

    @ray.method(tensor_transport="gpushm_numpy")
    def batch(self, value: float) -> dict[str, np.ndarray]:
        images = gpushm.ray.empty((64, 3, 64, 64), "f4")  # what is written here is not copied
        images[...] = value
        return {"images": images, "labels": np.arange(64)}

    def pid(self) -> int:
        return os.getpid()


@ray.remote(num_cpus=0)
class Trainer:
    """One of many; all of a node use the same weights."""

    def __init__(self) -> None:
        self.weights = gpushm.ray.weights("ray_objects", lambda: {"scale": np.full(3, 2.0, "f4")})

    def step(self, batch: dict[str, np.ndarray]) -> float:
        return float((batch["images"].mean((0, 2, 3)) * self.weights["scale"]).sum() + batch["labels"][-1])


def main() -> None:
    ray.init(address=os.environ.get("RAY_ADDRESS"), log_to_driver=False)
    sampler, trainers = Sampler.remote(), [Trainer.remote() for _ in range(2)]
    batches = [sampler.batch.remote(float(i)) for i in range(4)]
    print("steps:", ray.get([t.step.remote(b) for b in batches for t in trainers]))
    os.kill(ray.get(sampler.pid.remote()), signal.SIGKILL)
    print("after the sampler's death:", ray.get([trainers[0].step.remote(b) for b in batches]))
    gpushm.ray.forget("ray_objects")


if __name__ == "__main__":
    main()
