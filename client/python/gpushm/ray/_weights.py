# SPDX-License-Identifier: MIT
"""weights(): one copy a node. A directory, an actor of the cluster, owns the tensors as a driver owns an object.

Of all who ask it lets one load. A node that has a copy gives it to FAN_OUT others at a time, and those to others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace as changed
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import _core
from . import _transport
from ._transport import Metadata

FAN_OUT = 2
BEAT = 2.0  # seconds between the signs of life of one that loads or pulls
DEAD = 15.0


class Directory:
    """The actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._now: Metadata | None = None
        self._nodes: dict[str, str] = {}  # that have it, with their relays
        self._jobs: dict[int, list[Any]] = {}  # node, the node that it pulls from, time of the last sign of life
        self._count = 0

    async def ask(self, node: str) -> tuple[int, Metadata | None]:
        """The number of a job, 0 for none, and what to open; None: load it. Returns when the node can have it."""
        while True:
            self._jobs = {n: job for n, job in self._jobs.items() if time.monotonic() - job[2] < DEAD}
            if self._now and node in self._nodes:
                return 0, self._now
            busy = Counter(source for _, source, _ in self._jobs.values())
            source = min(self._nodes, key=busy.__getitem__, default="")
            if busy[source] < (FAN_OUT if source else 1) and node not in {there for there, *_ in self._jobs.values()}:
                self._count += 1
                self._jobs[self._count] = [node, source, time.monotonic()]
                return self._count, self._from(source)
            await asyncio.sleep(0.02)

    def _from(self, source: str) -> Metadata | None:
        if self._now is None or not source:
            return None
        if source == self._now.node:
            return self._now
        return changed(self._now, relay=self._nodes[source], buffer=f"ray/{self._now.key}", is_offered=True)

    async def alive(self, job: int) -> None:
        """A sign of life."""
        if job in self._jobs:
            self._jobs[job][2] = time.monotonic()

    async def done(self, job: int, node: str, relay: str, is_gone: bool) -> None:
        """The node has it, if it says its relay. is_gone: where it looked it is no more."""
        _, source, _ = self._jobs.pop(job, [node, node, 0])
        if is_gone:
            self._nodes.pop(source, None)
        elif relay and source != node:
            self._nodes[node] = relay

    async def loaded(self, job: int, meta: Metadata) -> None:
        """A new generation. The nodes that have the last one get it; that is freed where nobody uses it."""
        others = self._nodes.keys() - {meta.node}
        self._now, self._nodes, self._jobs = meta, {meta.node: meta.relay}, {}
        for node in others:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            ray.remote(num_cpus=0)(_fetch).options(scheduling_strategy=where).remote(self._name)


def weights(name: str, load: Callable[[], Mapping[str, Any]], *, replace: bool = False) -> Mapping[str, Any]:
    """The tensors of that name, from the one copy that this node has of them, read-only; all its processes share it.

    load: makes them, a dict of names to tensors of PyTorch or arrays of NumPy. Of all processes of the cluster one
    calls it. Other nodes get them from a node that has them, by relays and in a tree; a process that comes later
    attaches. An error of load() is raised where it was called, and another process that waits tries its own.

    replace: load a new generation. The nodes that have the old one get it, and so do later calls of weights();
    those who use the old one keep it.

    The copies stay until forget(), or until the cluster ends.
    """
    title: dict[str, Any] = {"name": f"gpushm weights {name}", "namespace": "gpushm", "lifetime": "detached"}
    make = ray.remote(num_cpus=0, max_concurrency=10000)(Directory)
    directory = make.options(**title, get_if_exists=True).remote(name)
    node = ray.get_runtime_context().get_node_id()
    while True:
        job, meta = (0, None) if replace else ray.get(directory.ask.remote(node))
        done = threading.Event()
        if job:
            threading.Thread(target=_beat, args=(directory, job, done), daemon=True).start()
        relay, is_gone = "", False
        try:
            made = _views(meta) if meta else _loaded(directory, job, load)
            relay = _transport.relay()
            return made
        except (_core.NotFound, ConnectionError):
            is_gone = meta is not None
            if not is_gone:
                raise
        finally:
            done.set()
            if job or is_gone:
                ray.get(directory.done.remote(job, node, relay, is_gone))


def _loaded(directory: Any, job: int, load: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    found = load()
    meta = _transport.published([*found.values()], is_owner=False, sealed=True)
    meta.names = [*found]
    made = _views(meta)
    ray.get(directory.loaded.remote(job, meta))
    return made


def _views(meta: Metadata) -> Mapping[str, Any]:
    return dict(zip(meta.names, _transport.views(meta, copy_on_write=False), strict=True))


def _beat(directory: Any, job: int, done: threading.Event) -> None:
    while not done.wait(BEAT):
        directory.alive.remote(job)


def _fetch(name: str) -> None:
    """A task of a node that has an earlier generation."""

    def load() -> Mapping[str, Any]:
        raise LookupError(f"nobody has the weights {name!r} any more")

    weights(name, load)


def forget(name: str) -> None:
    """Frees the weights of that name, on each node when its processes have let go of them."""
    with suppress(ValueError):
        ray.kill(ray.get_actor(f"gpushm weights {name}", "gpushm"))
