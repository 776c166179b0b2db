# SPDX-License-Identifier: MIT
"""gpushm.ray.weights(): one copy a node, whoever asks, and Ray Serve's replicas as they come and go."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import gpushm
import gpushm.ray
import ray
from nodes import Nodes, until

N = 1 << 18


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("nodes")) as made:
        made.add()
        yield made


class Worker:
    """One of many that compute with the same weights."""

    def load(self, name: str, value: float, log: str, replace: bool = False, wait: float = 0) -> float:
        def make() -> Mapping[str, Any]:
            with Path(log).open("a") as said:
                said.write(f"{os.getpid()}\n")
            time.sleep(wait)
            if value < 0:
                raise ValueError("no such model")
            return {"w": np.full(N, value, "f4"), "b": np.arange(3)}

        self.found = gpushm.ray.weights(name, make, replace=replace)
        return self.first()

    def first(self) -> float:
        assert list(self.found) == ["w", "b"] and not self.found["w"].flags.writeable
        return float(self.found["w"][-1])


def loads(log: Path) -> int:
    return len(log.read_text().split())


def copies(nodes: Nodes) -> list[int]:
    return [len(nodes.buffers(i)) for i in range(len(nodes.ids))]


def test_one_loads_and_each_node_has_one_copy(nodes: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    workers = [nodes.on(Worker, i % 2) for i in range(4)]
    assert ray.get([w.load.remote("a", 2.0, str(log), wait=0.5) for w in workers]) == [2.0] * 4
    assert loads(log) == 1 and copies(nodes) == [1, 1]
    for worker in workers:
        ray.kill(worker)
    time.sleep(1)
    assert copies(nodes) == [1, 1], "it stays for those who start later"
    assert ray.get(nodes.on(Worker, 1).load.remote("a", 3.0, str(log))) == 2.0 and loads(log) == 1
    gpushm.ray.forget("a")
    until(lambda: copies(nodes) == [0, 0], 30)


def test_a_new_generation_reaches_all_nodes_and_users_keep_the_old(nodes: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    old, new = nodes.on(Worker, 0), nodes.on(Worker, 1)
    assert ray.get([old.load.remote("b", 1.0, str(log)), new.load.remote("b", 1.0, str(log))]) == [1.0, 1.0]
    assert ray.get(new.load.remote("b", 2.0, str(log), replace=True)) == 2.0
    until(lambda: copies(nodes) == [2, 1], 30)  # before anybody on the first node asks for it
    assert ray.get(old.first.remote()) == 1.0
    assert ray.get(nodes.on(Worker, 0).load.remote("b", 3.0, str(log))) == 2.0 and loads(log) == 2
    ray.kill(old)
    until(lambda: copies(nodes) == [1, 1], 30)
    ray.kill(new)
    gpushm.ray.forget("b")
    until(lambda: copies(nodes) == [0, 0], 30)


def test_where_the_one_that_loads_fails_or_dies_another_one_does(nodes: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    one, two = nodes.on(Worker, 0), nodes.on(Worker, 1)
    with pytest.raises(Exception, match="no such model"):
        ray.get(one.load.remote("c", -1.0, str(log)))
    slow = one.load.remote("c", 1.0, str(log), wait=60)
    until(lambda: loads(log) == 2)
    waits = two.load.remote("c", 2.0, str(log))
    os.kill(int(log.read_text().split()[-1]), signal.SIGKILL)
    assert ray.get(waits, timeout=60) == 2.0
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(slow)
    ray.kill(two)
    gpushm.ray.forget("c")
    until(lambda: copies(nodes) == [0, 0], 30)


def test_a_node_that_joins_pulls(nodes: Nodes, tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert ray.get(nodes.on(Worker, 1).load.remote("d", 5.0, str(log))) == 5.0
    nodes.add()
    assert ray.get(nodes.on(Worker, 2).load.remote("d", 6.0, str(log))) == 5.0
    assert loads(log) == 1 and copies(nodes)[1:] == [1, 1]
    gpushm.ray.forget("d")
    until(lambda: not any(copies(nodes)), 30)


def test_replicas_of_serve_share_one_copy(nodes: Nodes, tmp_path: Path) -> None:
    serve = pytest.importorskip("ray.serve")
    log = str(tmp_path / "log")

    @serve.deployment(
        ray_actor_options={"num_cpus": 0},
        max_ongoing_requests=2,
        autoscaling_config={
            "min_replicas": 1, "max_replicas": 3, "target_ongoing_requests": 1, "upscale_delay_s": 0.5,
        },
    )  # fmt: skip
    class Model:
        def __init__(self) -> None:
            def load() -> Mapping[str, Any]:
                with Path(log).open("a") as said:
                    said.write(f"{os.getpid()}\n")
                return {"w": np.full(N, 4.0, "f4")}

            self.weights = gpushm.ray.weights("served", load)

        def __call__(self, x: float) -> tuple[int, float]:
            time.sleep(0.3)
            return os.getpid(), float(self.weights["w"][0] * x)

    try:
        handle = serve.run(Model.bind(), name="app", route_prefix=None)
        seen: set[int] = set()
        end = time.monotonic() + 120
        while len(seen) < 2 and time.monotonic() < end:
            for pid, answer in [r.result() for r in [handle.remote(2.0) for _ in range(12)]]:
                assert answer == 8.0
                seen.add(pid)
        assert len(seen) >= 2 and loads(Path(log)) == 1
        assert max(copies(nodes)) == 1
    finally:
        serve.shutdown()
        gpushm.ray.forget("served")
    until(lambda: not any(copies(nodes)), 60)
