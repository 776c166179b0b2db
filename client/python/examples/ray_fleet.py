# SPDX-License-Identifier: MIT
"""A Ray cluster where each node has one copy of a model, and every actor uses the copy of its node.

    python ray_fleet.py source.example.com/digits         # or HOST:PORT/NAME, or a URL; there a gpushm-relay offers it

Ray decides where tasks and actors run; gpushm has no scheduler of its own. It is one daemon on each node, and the
model is pulled once into its memory, however many actors the node has. An actor is not given the model, only its name:
Ray's object store never holds the weights, and a new actor is ready in the time of an open.

Ray must be started by the user who owns the buffers, or the buffers need a mode for others (mode=0o644).
"""

from __future__ import annotations

import os
import sys

import gpushm
import numpy as np
import ray
from ray.util.placement_group import placement_group, remove_placement_group
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

NAME = os.environ.get("FLEET_NAME", "fleet/digits")
PER_NODE = 2


@ray.remote(num_cpus=0)
def have(source: str, name: str) -> tuple[str, int]:
    """Runs once on each node, and pulls the model if the node does not have it. Returns the node, and the bytes."""
    with gpushm.pull(source, name, if_missing=True) as model:
        return ray.get_runtime_context().get_node_id(), model.nbytes


@ray.remote(num_cpus=1)
class Classifier:
    """One of many actors on a node: a layer of ReLU and a linear one, on memory that all of them share."""

    def __init__(self, name: str) -> None:
        self.model = gpushm.open_many(name)
        self.w1, self.b1, self.w2, self.b2 = (np.from_dlpack(self.model[k]) for k in ("w1", "b1", "w2", "b2"))

    def where(self) -> tuple[str, int, int]:
        """The node, the number of the buffer there, and how many processes of the node have it open."""
        readers = gpushm.stat(self.model.name).readers
        return ray.get_runtime_context().get_node_id(), self.model.id, readers

    def classify(self, images: np.ndarray) -> np.ndarray:
        hidden = np.maximum(images @ self.w1 + self.b1, 0)
        return (hidden @ self.w2 + self.b2).argmax(1)


def everywhere(source: str, name: str) -> list[str]:
    """The nodes, when all have the model. All pull at once: a busy relay names others that have it, or a part."""
    nodes = [n["NodeID"] for n in ray.nodes() if n["Alive"]]
    pulls = [have.options(scheduling_strategy=NodeAffinitySchedulingStrategy(n, soft=False)) for n in nodes]
    for node, nbytes in ray.get([p.remote(source, name) for p in pulls]):
        print(f"node {node[:8]}: has {name}, {nbytes} bytes")
    return nodes


def main(source: str) -> None:
    ray.init(address=os.environ.get("RAY_ADDRESS", "auto"), log_to_driver=False)
    nodes = everywhere(source, NAME)

    # A bundle for each node, with room for its actors. STRICT_SPREAD: no two bundles on one node.
    group = placement_group([{"CPU": PER_NODE}] * len(nodes), strategy="STRICT_SPREAD")
    ray.get(group.ready())
    actors = [
        Classifier.options(scheduling_strategy=PlacementGroupSchedulingStrategy(group, bundle)).remote(NAME)
        for bundle in range(len(nodes))
        for _ in range(PER_NODE)
    ]
    images = np.random.default_rng(1).integers(0, 17, (600, 64)).astype("f4")
    parts = np.array_split(images, len(actors))
    digits = np.concatenate(ray.get([a.classify.remote(p) for a, p in zip(actors, parts, strict=True)]))
    at_once = ray.get(actors[0].classify.remote(images))
    for node, buffer, readers in sorted(ray.get([a.where.remote() for a in actors])):
        print(f"node {node[:8]}: an actor uses buffer {buffer}, as {readers} do there")
    print(f"{len(actors)} actors on {len(nodes)} nodes, {len(digits)} answers", end=", ")
    print("the same as one actor's" if (digits == at_once).all() else "NOT the same as one actor's")
    remove_placement_group(group)


if __name__ == "__main__":
    main(sys.argv[1])
