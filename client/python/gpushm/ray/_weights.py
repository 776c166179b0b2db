# SPDX-License-Identifier: MIT
"""weights(): one copy a node. A directory, an actor of the cluster, owns the tensors as a driver owns an object.

Of all who ask it lets one load. A node that has a copy gives it to FAN_OUT others at a time, and those to others.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace as changed
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from .. import _core
from . import _transport
from ._transport import Metadata

FAN_OUT = 2
BEAT = 2.0  # seconds between the signs of life of one that loads or pulls
DEAD = 15.0


class Weights(NamedTuple):
    """A generation: an object, and its tensors' names."""

    number: int
    meta: Metadata
    names: list[str]
    is_torch: bool


class Job:
    """One that loads, or pulls from a node's relay."""

    def __init__(self, node: str, source: str) -> None:
        self.node, self.source, self.seen = node, source, time.monotonic()


class Directory:
    """The actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._now: Weights | None = None
        self._nodes: dict[str, str] = {}  # that have it, with their relays
        self._jobs: dict[int, Job] = {}
        self._count = 0

    async def ask(self, node: str) -> tuple[int, Weights | None]:
        """The number of a job, and the weights to attach to; None: load them. Returns when the node can have them."""
        while True:
            for number in [n for n, j in self._jobs.items() if time.monotonic() - j.seen > DEAD]:
                del self._jobs[number]
            if (found := self._job(node)) is not None:
                return found
            await asyncio.sleep(0.02)

    def _job(self, node: str) -> tuple[int, Weights | None] | None:
        if self._now and node in self._nodes:
            return 0, self._now
        busy = Counter(job.source for job in self._jobs.values())
        source = min(self._nodes, key=lambda n: busy[n], default="")
        if any(job.node == node for job in self._jobs.values()) or busy[source] >= (FAN_OUT if source else 1):
            return None
        self._count += 1
        self._jobs[self._count] = Job(node, source)
        if self._now is None or not source:
            return self._count, None
        meta = changed(self._now.meta, relay=self._nodes[source], hold=None)
        if source != meta.node:
            meta.buffer = f"ray/{meta.key}"
        return self._count, self._now._replace(meta=meta)

    async def alive(self, number: int) -> None:
        """A sign of life."""
        if number in self._jobs:
            self._jobs[number].seen = time.monotonic()

    async def done(self, job: int, node: str, relay: str) -> None:
        """The node has them."""
        if self._jobs.pop(job, None) or not job:
            self._nodes[node] = relay

    async def failed(self, job: int, has_no_source: bool) -> None:
        """Somebody else is to do it."""
        gone = self._jobs.pop(job, None)
        if gone and has_no_source:
            self._nodes.pop(gone.source, None)

    async def lost(self, node: str) -> None:
        """The node's daemon has them no more."""
        self._nodes.pop(node, None)

    async def loaded(self, meta: Metadata, names: list[str], is_torch: bool, job: int) -> None:
        """A new generation. The nodes that have the one before get it; that is freed where nobody uses it."""
        others = self._nodes.keys() - {meta.node}
        self._now = Weights((self._now.number if self._now else 0) + 1, meta, names, is_torch)
        self._nodes, self._jobs = {meta.node: meta.relay}, {}
        for node in others:
            where = NodeAffinitySchedulingStrategy(node, soft=False)
            ray.remote(num_cpus=0)(_fetch).options(scheduling_strategy=where).remote(self._name)


def weights(name: str, load: Callable[[], Mapping[str, Any]], *, replace: bool = False) -> Mapping[str, Any]:
    """As gpushm.ray.weights()."""
    make = ray.remote(num_cpus=0, max_concurrency=10000)(Directory)
    title: dict[str, Any] = {"name": f"gpushm weights {name}", "namespace": "gpushm", "lifetime": "detached"}
    directory = make.options(**title, get_if_exists=True).remote(name)
    return _loaded(directory, load, 0) if replace else _attached(directory, load)


def _attached(directory: Any, load: Callable[[], Mapping[str, Any]]) -> Mapping[str, Any]:
    node = ray.get_runtime_context().get_node_id()
    while True:
        job, found = ray.get(directory.ask.remote(node))
        with _signs_of_life(directory, job):
            try:
                if found is None:
                    return _loaded(directory, load, job)
                made = _views(found)
                if job:
                    ray.get(directory.done.remote(job, node, _transport.relay()))
                return made
            except (_core.NotFound, ConnectionError):
                ray.get(directory.failed.remote(job, True) if job else directory.lost.remote(node))
                if found is None:
                    raise
            except BaseException:
                ray.get(directory.failed.remote(job, False))
                raise


def _loaded(directory: Any, load: Callable[[], Mapping[str, Any]], job: int) -> Mapping[str, Any]:
    found = load()
    values = [*found.values()]
    meta = _transport.published(values, is_owner=False, sealed=True)
    is_torch = hasattr(values[0], "data_ptr")
    made = _views(Weights(0, meta, [*found], is_torch))
    ray.get(directory.loaded.remote(meta, [*found], is_torch, job))
    return made


def _views(found: Weights) -> Mapping[str, Any]:
    views = _transport.tensors(found.meta, False) if found.is_torch else _transport.arrays(found.meta)
    return dict(zip(found.names, views, strict=True))


def _fetch(name: str) -> None:
    """A task of a node that has an earlier generation."""

    def load() -> Mapping[str, Any]:
        raise LookupError(f"nobody has the weights {name!r} any more")

    weights(name, load)


def forget(name: str) -> None:
    """As gpushm.ray.forget()."""
    with suppress(ValueError):
        ray.kill(ray.get_actor(f"gpushm weights {name}", "gpushm"))


@contextmanager
def _signs_of_life(directory: Any, job: int) -> Iterator[None]:
    done = threading.Event()

    def run() -> None:
        while not done.wait(BEAT):
            directory.alive.remote(job)

    if job:
        threading.Thread(target=run, daemon=True).start()
    try:
        yield
    finally:
        done.set()
