# SPDX-License-Identifier: MIT
"""weights(): one copy a node. A directory, an actor of the cluster, says to each who asks what to do.

A generation is a sealed buffer with a name of its own, the same on all nodes. Of those who ask, the directory lets one
load it. A node that has it gives it to at most FAN_OUT others at a time, by its relay, and those to others: a tree. The
directory holds the copy of each node, as the owner of an object does, until a later generation is there.
"""

from __future__ import annotations

import asyncio
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gpushm import _core

from . import _link, _store
from ._meta import Hold
from ._transport import local, pulled, relay

FAN_OUT = 2
BEAT = 2.0  # seconds between the signs of life of one that loads or pulls
DEAD = 15.0
_KIND = "gpushm.ray.kind"


class Job(NamedTuple):
    """What one who has asked is to do: "open" the buffer, "load" it, or "pull" it from a node's relay."""

    what: str
    buffer: str
    number: int = 0
    relay: str = ""
    on_gpu: bool = False


class Copy(NamedTuple):
    """That of a node."""

    relay: str
    on_gpu: bool
    hold: Hold


class Generation:
    """A buffer, and the nodes that have it."""

    def __init__(self) -> None:
        self.buffer = f"ray/weights/{uuid.uuid4().hex}"
        self.copies: dict[str, Copy] = {}
        self.jobs: dict[int, tuple[str, str, float]] = {}  # node, the node that it pulls from or "", last sign of life


class Directory:
    """The actor."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._generations: list[Generation] = []  # the last one that is whole, and later ones
        self._changed = asyncio.Condition()
        self._number = 0
        self._watch: asyncio.Task[None] | None = None

    async def ask(self, node: str, replace: bool) -> Job:
        """Returns when there is something to do for a process of the node."""
        if self._watch is None:
            self._watch = asyncio.get_running_loop().create_task(self._forget_the_dead())
        made = Generation() if replace or not self._generations else None
        if made:
            self._generations.append(made)
        async with self._changed:
            while True:
                job = self._job(node, made if replace and made else self._generations[0])
                if job is not None:
                    return job
                await self._changed.wait()

    def _job(self, node: str, generation: Generation) -> Job | None:
        if node in generation.copies:
            return Job("open", generation.buffer)
        if any(there == node for there, _, _ in generation.jobs.values()):
            return None
        if not generation.copies:
            return None if generation.jobs else self._given(generation, Job("load", generation.buffer), node, "")
        busy = Counter(source for _, source, _ in generation.jobs.values())
        source = min(generation.copies, key=lambda n: busy[n])
        if busy[source] >= FAN_OUT:
            return None
        found = generation.copies[source]
        job = Job("pull", generation.buffer, relay=found.relay, on_gpu=found.on_gpu)
        return self._given(generation, job, node, source)

    def _given(self, generation: Generation, job: Job, node: str, source: str) -> Job:
        self._number += 1
        generation.jobs[self._number] = node, source, time.monotonic()
        return job._replace(number=self._number)

    async def done(self, job: Job, relay: str, on_gpu: bool, address: _link.Address, key: str) -> None:
        """The node has the buffer, and its holder knows it by that key."""
        generation, (node, *_) = self._taken(job)
        link = _link.to(address)
        link.say("hold", key)
        generation.copies[node] = Copy(relay, on_gpu, Hold(link, key, "drop"))
        newest = generation is not self._generations[0] and job.what == "load"
        if newest:
            old = self._generations[: self._generations.index(generation)]
            del self._generations[: len(old)]
            fetch = ray.remote(num_cpus=0)(_fetch)
            for there in {n for g in old for n in g.copies} - {node}:
                where = NodeAffinitySchedulingStrategy(there, soft=False)
                fetch.options(scheduling_strategy=where).remote(self._name)
        async with self._changed:
            self._changed.notify_all()

    async def failed(self, job: Job, source_is_gone: bool) -> None:
        """Somebody else is to do it."""
        generation, (_, source, _) = self._taken(job)
        if source_is_gone:
            generation.copies.pop(source, None)
        if not generation.copies and not generation.jobs and len(self._generations) > 1:
            self._generations.remove(generation)
        async with self._changed:
            self._changed.notify_all()

    def _taken(self, job: Job) -> tuple[Generation, tuple[str, str, float]]:
        for generation in self._generations:
            if job.number in generation.jobs:
                return generation, generation.jobs.pop(job.number)
        raise TimeoutError(f"gpushm.ray.weights({self._name!r}): another process was asked instead of this one")

    async def lost(self, node: str, buffer: str) -> None:
        """The node's daemon has it no more."""
        for generation in self._generations:
            if generation.buffer == buffer:
                generation.copies.pop(node, None)

    async def alive(self, number: int) -> None:
        """A sign of life."""
        for generation in self._generations:
            if number in generation.jobs:
                node, source, _ = generation.jobs[number]
                generation.jobs[number] = node, source, time.monotonic()

    async def _forget_the_dead(self) -> None:
        while True:
            await asyncio.sleep(BEAT)
            for generation in self._generations:
                for number, (_, _, last) in [*generation.jobs.items()]:
                    if time.monotonic() - last > DEAD:
                        del generation.jobs[number]
            async with self._changed:
                self._changed.notify_all()


def weights(
    name: str, load: Callable[[], Mapping[str, Any]] | None, *, replace: bool = False, pool: str | None = None
) -> Mapping[str, Any]:
    """See gpushm.ray."""
    directory = _directory(name, load is not None)
    node = ray.get_runtime_context().get_node_id()
    while True:
        job = ray.get(directory.ask.remote(node, replace))
        if job.what == "open":
            found = _opened(job.buffer)
            if found is not None:
                return found
            ray.get(directory.lost.remote(node, job.buffer))
            continue
        with _signs_of_life(directory, job):
            try:
                buffer = _made(job, load, pool)
            except (ConnectionError, _core.NotFound):
                ray.get(directory.failed.remote(job, True))
                if job.what == "load":
                    raise
                continue
            except BaseException:
                ray.get(directory.failed.remote(job, False))
                raise
            with buffer:
                key = uuid.uuid4().hex
                host, port, token = local().ask("keep", key, job.buffer).split()
                spent = Hold(local(), key, "spent")
                address = host, int(port), token
                ray.get(directory.done.remote(job, relay(), buffer.device is not None, address, key))
                del spent
                found = _opened(job.buffer)
                assert found is not None
                return found


def forget(name: str) -> None:
    """See gpushm.ray."""
    with suppress(ValueError):
        ray.kill(ray.get_actor(f"gpushm weights {name}", "gpushm"))


def _directory(name: str, may_make: bool) -> Any:
    title = f"gpushm weights {name}"
    if not may_make:
        return ray.get_actor(title, "gpushm")
    made = ray.remote(num_cpus=0, max_concurrency=10000)(Directory)
    return made.options(name=title, namespace="gpushm", lifetime="detached", get_if_exists=True).remote(name)


def _fetch(name: str) -> None:
    """A task of a node that has an earlier generation."""
    with suppress(ValueError):
        weights(name, None)


def _made(job: Job, load: Callable[[], Mapping[str, Any]] | None, pool: str | None) -> _core.Buffer:
    if job.what == "pull":
        gpu = (_core._current_device() or 0) if job.on_gpu else None
        device = "current" if job.on_gpu else None
        return pulled(
            job.relay, job.buffer, job.buffer, pool=pool or _store.pool(gpu), transient=True, mode=_store.mode(),
            device=device,
        )  # fmt: skip
    if load is None:
        raise ValueError("nobody has the weights any more")
    found = load()
    if any(hasattr(t, "data_ptr") for t in found.values()):
        from gpushm import torch

        made = torch.publish(
            job.buffer, found, transient=True, mode=_store.mode(), pool=pool, digest=False, attrs={_KIND: "torch"}
        )
        return made.buffer
    buffer = _core.create_many(
        job.buffer, found, transient=True, mode=_store.mode(), pool=pool or _store.pool(None), attrs={_KIND: "numpy"}
    )
    buffer.publish()
    return buffer


def _opened(name: str) -> Mapping[str, Any] | None:
    try:
        buffer = _core.open_many(name, device="current")
    except _core.NotFound:
        return None
    if buffer.attr(_KIND) == b"torch":
        from gpushm import torch

        return torch.Tensors(buffer)
    import numpy

    return {key: numpy.asarray(array) for key, array in buffer.items()}


@contextmanager
def _signs_of_life(directory: Any, job: Job) -> Iterator[None]:
    done = threading.Event()

    def run() -> None:
        while not done.wait(BEAT):
            directory.alive.remote(job.number)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
