#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""A fleet in a storm: followers of one source, while relays and daemons are killed at random moments.

storm.py [SECONDS [SEED]]. The source gets new generations all the time. Whatever is killed is started
again; in the end each machine must have the last generation, bit for bit, with nothing left behind.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

import namespaces
from models import write_model
from node import Node, Relay

MACHINES = 8
SIZE = 24 << 20
TIMEOUT = 180  # seconds, for the end; to fail rather than to hang


def contents(node: Node, name: str = "model") -> str:
    """The digest that the machine's buffer has; "" if it has none."""
    done = node.ctl("stat", "--json=short", name, check=False)
    return str(json.loads(done.stdout or "{}").get("model", {}).get("digest", ""))


class Storm:
    """The fleet, and what happens to it."""

    def __init__(self, folder: Path, chance: random.Random) -> None:
        self.folder = folder
        self.chance = chance
        self.generation = 0
        self.deaths = {"relay": 0, "daemon": 0, "source": 0, "cable": 0, "stop": 0}
        self.source = Node()
        self.load()
        first = self.source.relay(f"fan-out={chance.choice([1, 2])}\n", insecure=True)
        self.source.limit(up="300mbit")
        self.nodes = [Node() for _ in range(MACHINES)]
        section = f"fan-out={chance.choice([1, 2])}\n[pull model]\nsource={first.source('model')}\nfollow=yes\n"
        self.relays = [first] + [node.relay(section, insecure=True) for node in self.nodes]

    def load(self) -> None:
        """A new generation at the source."""
        self.generation += 1
        file = self.folder / "model.safetensors"
        write_model(file, SIZE, seed=self.generation)
        self.source.ctl("load", "--replace", file, "model")

    def kill_relay(self, relay: Relay) -> None:
        """As a crash does; it comes back at its port."""
        self.deaths["source" if relay is self.relays[0] else "relay"] += 1
        relay.end(signal.SIGKILL)
        time.sleep(self.chance.choice([0, 0, 0.2, 1]))
        relay.start(relay.port)

    def kill_daemon(self, node: Node) -> None:
        """Its buffers are gone."""
        self.deaths["daemon"] += 1
        node.daemon.kill()
        node.daemon.start()

    def strike(self) -> None:
        """One misfortune."""
        what = self.chance.random()
        node = self.chance.choice(self.nodes)
        if what < 0.45:
            self.kill_relay(self.chance.choice(self.relays[1:]))
        elif what < 0.55:
            self.kill_relay(self.relays[0])
        elif what < 0.65:
            self.kill_daemon(node)
        elif what < 0.75:
            self.deaths["cable"] += 1
            node.unplug()
            time.sleep(self.chance.choice([0.1, 0.5, 2]))
            node.plug()
        elif what < 0.85:
            self.deaths["stop"] += 1
            process = self.chance.choice(self.relays).process
            assert process is not None
            process.send_signal(signal.SIGSTOP)
            time.sleep(self.chance.choice([0.1, 0.5, 2]))
            process.send_signal(signal.SIGCONT)
        else:
            self.load()

    def rage(self, seconds: float) -> None:
        """Strikes at random moments."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            time.sleep(self.chance.choice([0, 0.05, 0.2, 0.7, 1.5]))
            self.strike()

    def settle(self) -> float:
        """Waits until all have the last generation, and compares all bytes. The seconds that it took."""
        self.load()
        wanted = contents(self.source)
        start = time.monotonic()
        left = list(self.nodes)
        while left and time.monotonic() - start < TIMEOUT:
            left = [node for node in left if contents(node) != wanted]
            time.sleep(0.1)
        took = time.monotonic() - start
        if left:
            self.report(left)
            sys.exit(f"{len(left)} machines do not have the last generation")
        for node in self.nodes:
            self.check(node)
        return took

    def sent_by(self, node: Node) -> str:
        """A digest of the file that its relay offers."""
        relay = next(r for r in self.relays if r.node is node)
        return hashlib.sha256(node.run("curl", "-sf", relay.source("model"), text=False).stdout).hexdigest()

    def check(self, node: Node) -> None:
        """All bytes, and that one buffer is all there is."""
        node.ctl("verify", "model")
        if self.sent_by(node) != self.sent_by(self.source):
            sys.exit(f"{node.name} sends other bytes")
        # A relay keeps a generation open for some seconds after its last reader.
        end = time.monotonic() + TIMEOUT
        while len(buffers := json.loads(node.ctl("ls", "--json=short").stdout)) != 1:
            if time.monotonic() > end:
                sys.exit(f"{node.name} has {len(buffers)} buffers: {buffers}")
            time.sleep(0.2)

    def report(self, nodes: list[Node]) -> None:
        """What their relays say."""
        for relay in self.relays:
            if relay.node in nodes:
                print(relay.node.name, relay.url, "".join(relay.log.read_text().splitlines(keepends=True)[-8:]))

    def end(self) -> None:
        """Ends all programs."""
        for node in [self.source, *self.nodes]:
            node.remove()


def main() -> None:
    """Prints what was done."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 120
    seed = int(sys.argv[2]) if len(sys.argv) > 2 else int.from_bytes(os.urandom(4), "little")
    print(f"storm.py {seconds:g} {seed}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(Path(folder), random.Random(seed))
        calm = storm.settle()
        storm.rage(seconds)
        took = storm.settle()
        storm.end()
    deaths = ", ".join(f"{n} {what}" for what, n in storm.deaths.items())
    print(f"{storm.generation} generations, {deaths}; calm {calm:.1f} s, after the storm {took:.1f} s")


if __name__ == "__main__":
    if why := namespaces.enter():
        print(f"skipped: {why}")
    else:
        main()
