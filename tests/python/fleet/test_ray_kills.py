# SPDX-License-Identifier: MIT
"""gpushm.ray when everything dies at random: nothing that Ray still knows is lost, and nothing that it forgot is left.

KILLS is the number of kills, 14 by default; RAY_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import gpushm
import ray
from conftest import Program
from nodes import Nodes, until

# What Ray's thread that ends a transfer imports needs PyTorch, which is not here.
pytestmark = pytest.mark.filterwarnings("ignore:Exception in thread:pytest.PytestUnhandledThreadExceptionWarning")
N = 1 << 16
KILLS = int(os.environ.get("KILLS", "14"))
LATE = 180  # seconds that a daemon, a relay or a node needs to come back on a busy machine, at most


class Actor:
    """Makes objects, and reads them."""

    @ray.method(tensor_transport="gpushm_numpy")
    def make(self, value: int) -> np.ndarray:
        return np.full(N, value, "i4")

    def read(self, a: np.ndarray) -> int:
        assert (a == a[0]).all()
        return int(a[0])

    def pid(self) -> int:
        return os.getpid()


DRIVER = """
import os, sys, time, numpy as np, ray
import gpushm.ray
gpushm.ray.register()
ray.init(address=sys.argv[1], log_to_driver=False, namespace="other")
@ray.remote(num_cpus=0)
class Actor:
    @ray.method(tensor_transport="gpushm_numpy")
    def make(self): return np.zeros(1 << 16)
    def read(self, a): return float(a.sum())
actors = [Actor.remote() for _ in range(2)]
refs = [actors[0].make.remote() for _ in range(3)] + [ray.put(np.ones(99), _tensor_transport="gpushm_numpy")]
print([ray.get(actors[1].read.remote(r)) for r in refs], "ready", flush=True)
time.sleep(1000)
"""
DRIVEN = "[0.0, 0.0, 0.0, 99.0] ready"


class Storm:
    """Two nodes, of which the second comes and goes; and objects, with what they hold."""

    def __init__(self, nodes: Nodes, chance: random.Random, folder: Path) -> None:
        self.nodes, self.chance, self.folder = nodes, chance, folder
        self.objects: dict[int, Any] = {}
        self.value = 0
        self.sources = [nodes.on(Actor, i) for i in range(2)]
        self.readers = [nodes.on(Actor, i) for i in range(2)]

    def patiently(self, call: Any) -> Any:
        """What it returns; while something comes back it fails."""
        end = time.monotonic() + LATE
        while True:
            try:
                return call()
            except Exception as e:
                if time.monotonic() > end:
                    raise
                last = e
                time.sleep(0.2)
            del last

    def make(self) -> None:
        def once() -> None:
            i = self.chance.randrange(2)
            ref = self.alive(self.sources, i).make.remote(self.value)
            # What was made is known to be there when a reader has had it.
            assert ray.get(self.alive(self.readers, i).read.remote(ref), timeout=LATE) == self.value
            self.objects[self.value] = ref

        self.value += 1
        self.patiently(once)

    def alive(self, actors: list[Any], i: int) -> Any:
        try:
            ray.get(actors[i].pid.remote(), timeout=LATE)
        except Exception:
            actors[i] = self.nodes.on(Actor, i)
        return actors[i]

    def check(self) -> None:
        for value, ref in self.objects.items():
            i = self.chance.randrange(2)
            found = self.patiently(lambda i=i, r=ref: ray.get(self.alive(self.readers, i).read.remote(r), timeout=LATE))
            assert found == value

    def kill(self, what: str) -> None:
        i = self.chance.randrange(2)
        if what in ("source", "reader"):
            actors = self.sources if what == "source" else self.readers
            os.kill(ray.get(self.alive(actors, i).pid.remote()), signal.SIGKILL)
        elif what == "daemon":
            with gpushm.connect(self.nodes.daemons[i].socket) as daemon:
                pid = daemon.status().pid
            os.kill(pid, signal.SIGKILL)
        elif what == "relay":
            self.nodes.restart_relay(i)
        elif what == "raylet":
            self.nodes.replace(1)
        else:
            self.kill_driver()

    def kill_driver(self) -> None:
        """Kills a driver that has objects. Ray needs 15 s to notice that a raylet is dead, and may place the driver's
        actors there until then: they never run, which ends the driver, and another one takes its turn.
        """
        words = [sys.executable, "-c", DRIVER, self.nodes.cluster.address]
        while True:
            program = Program(words, self.folder / "driver")
            until(lambda p=program: DRIVEN in p.said() or p.process.poll() is not None, LATE)
            said = program.said()
            program.end(signal.SIGKILL)
            if DRIVEN in said:
                return
            assert "its node has died" in said, said


def test_kills_at_random_lose_nothing_and_leave_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("RAY_SEED", time.time_ns() % 100000))
    print(f"RAY_SEED={seed}")
    chance = random.Random(seed)
    kinds = [*("source", "reader", "daemon", "relay") * 3, "raylet", "driver"]
    with Nodes(tmp_path, keeper=True) as nodes:
        nodes.add()
        storm = Storm(nodes, chance, tmp_path)
        todo = [kind for _ in range(-(-KILLS // len(kinds))) for kind in chance.sample(kinds, len(kinds))][:KILLS]
        for i, kind in enumerate(todo):
            print(f"{i} killed; next: {kind}", flush=True)
            for _ in range(2):
                storm.make()
            storm.kill(kind)
            while len(storm.objects) > 4:
                del storm.objects[chance.choice([*storm.objects])]
            storm.check()
        storm.objects.clear()
        until(lambda: not storm.patiently(nodes.left), 60)


def test_where_driver_raylets_and_head_are_killed_no_buffer_is_left(tmp_path: Path) -> None:
    script = tmp_path / "cluster.py"
    script.write_text(
        "import sys\nfrom ray.cluster_utils import Cluster\n"
        "c = Cluster(initialize_head=True, head_node_args={'num_cpus': 4,"
        " 'object_store_memory': 90 << 20, 'include_dashboard': False})\nsys.argv[1:] = [c.address]\n" + DRIVER
    )
    daemon = gpushm_daemon()
    try:
        program = Program([sys.executable, str(script)], tmp_path / "said", GPUSHM_SOCKET=daemon.socket)
        until(lambda: DRIVEN in program.said() or program.process.poll() is not None, 120)
        with gpushm.connect(daemon.socket) as connection:
            assert connection.ls("ray/"), program.said()
            start = time.monotonic()
            for pid in having(f"GPUSHM_SOCKET={daemon.socket}"):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            until(lambda: not connection.ls("ray/"), 30)
            print(f"{time.monotonic() - start:.1f} s")
        program.end(signal.SIGKILL)
    finally:
        daemon.remove()


def gpushm_daemon() -> Any:
    from daemon import Daemon

    return Daemon("[pool host]\nkind=host\nsize=64M\n")


def having(variable: str) -> list[int]:
    """The processes of that cluster: those with the variable, but for the holder."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (folder / "cmdline").read_bytes()
            if variable.encode() in (folder / "environ").read_bytes().split(b"\0") and b"_holder" not in words:
                found.append(int(folder.name))
    return found
