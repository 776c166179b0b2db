# SPDX-License-Identifier: MIT
"""A cluster of Ray on one machine: a raylet with a daemon and a relay for each node. The driver is on the first."""

from __future__ import annotations

import gc
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0", "RAY_DEDUP_LOGS": "0"}
os.environ |= {f"RAY_SERVE_{who}_AUTOSCALING_METRIC_PUSH_INTERVAL_S": "0.5" for who in ("REPLICA", "HANDLE")}

import gpushm
import gpushm.ray
import ray
from conftest import BUILD, Program
from ray.cluster_utils import Cluster
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from daemon import Daemon

gpushm.ray.register()

POOL = "[pool host]\nkind=host\nsize=512M\n"


class Nodes:
    """Use it in a with statement."""

    def __init__(self, folder: Path, *, keeper: bool = False) -> None:
        self.folder = folder
        self.daemons: list[Daemon] = []
        self.relays: list[Program] = []
        self.ids: list[str] = []
        self.raylets: list[Any] = []
        self._envs: list[dict[str, str]] = []
        self._options: dict[str, Any] = {"keeper": keeper}
        self.ports: list[str] = []
        self.cluster = Cluster()
        self.add()
        os.environ["GPUSHM_SOCKET"] = self.daemons[0].socket
        ray.init(address=self.cluster.address, log_to_driver=False)

    def relay(self, i: int, port: str = "0") -> str:
        """Starts a node's relay, and returns its URL."""
        (self.folder / "relay.conf").touch()
        words = [str(BUILD / "gpushm-relay"), f"--config={self.folder}/relay.conf", f"--listen=127.0.0.1:{port}"]
        program = Program(words, self.folder / f"relay{i}", GPUSHM_SOCKET=self.daemons[i].socket)
        self.relays[i:] = [program, *self.relays[i + 1 :]]
        until(lambda: re.search(r"http://[^\s/]+", program.said()))
        return re.search(r"http://[^\s/]+", program.said())[0]  # type: ignore[index]

    def restart_relay(self, i: int) -> None:
        """After a kill."""
        self.relays[i].end(signal.SIGKILL)
        self.relay(i, self.ports[i])

    def add(self) -> str:
        """A node more; returns its id."""
        self.daemons.append(Daemon(POOL, **self._options))
        relay = self.relay(len(self.daemons) - 1)
        self.ports.append(relay.rpartition(":")[2])
        self._envs.append({"GPUSHM_SOCKET": self.daemons[-1].socket, "GPUSHM_RAY_RELAY": relay})
        if not self.ids:
            os.environ |= self._envs[0]  # the driver's, too
        return self._start()

    def _start(self) -> str:
        env = self._envs[len(self.ids)]
        options: dict[str, Any] = {"num_cpus": 8, "object_store_memory": 90 << 20, "include_dashboard": False}
        for is_last in False, False, True:  # Ray gives it 30 s, which is too little on a busy machine
            try:
                raylet = self.cluster.add_node(env_vars=env, **options)
                break
            except Exception:
                if is_last:
                    raise
        self.raylets.append(raylet)
        self.ids.append(raylet.node_id)
        return str(raylet.node_id)

    def replace(self, i: int) -> None:
        """Kills the raylet of the last node, and starts another one there."""
        assert i == len(self.ids) - 1
        self.cluster.remove_node(self.raylets.pop(), allow_graceful=False)
        self.ids.pop()
        self._start()

    def on(self, cls: Any, i: int, *args: Any) -> Any:
        """An actor of a node, whose workers do not find the tests' modules."""
        ray.cloudpickle.register_pickle_by_value(sys.modules[cls.__module__])
        where = NodeAffinitySchedulingStrategy(self.ids[i], soft=False)
        return ray.remote(num_cpus=0)(cls).options(scheduling_strategy=where).remote(*args)

    def buffers(self, i: int = 0) -> list[str]:
        """The names of a node's objects."""
        with gpushm.connect(self.daemons[i].socket) as daemon:
            return [b.name for b in daemon.ls("ray/")]

    def left(self) -> list[str]:
        """All objects, with the processes that have them open, also on stdout."""
        found = []
        for daemon in self.daemons:
            with gpushm.connect(daemon.socket) as connection:
                found += [f"{b.name}: {b.holders}" for b in connection.ls("ray/", holders=True)]
        gc.collect()  # of tracebacks that have references
        known = ray._private.worker.global_worker.rdt_manager._managed_rdt_metadata
        print(*found, "known:", *known)
        return found

    def __enter__(self) -> Nodes:
        return self

    def __exit__(self, *raised: object) -> None:
        ray.shutdown()
        self.cluster.shutdown()
        for relay in self.relays:
            relay.end()
        gpushm._core._disconnect()
        for daemon in self.daemons:
            daemon.remove()


def until(done: Callable[[], Any], seconds: float = 60) -> None:
    """Waits for that."""
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.05)

