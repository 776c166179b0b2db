# SPDX-License-Identifier: MIT
"""Pulls by NVIDIA's NIXL itself: UCX over TCP between two machines. make venv-nixl installs it."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from node import BUILD, TIMEOUT, Node, Relay

MIB = 1 << 20
VENV = BUILD.resolve() / "venv-nixl"

pytestmark = [
    pytest.mark.deep,
    pytest.mark.skipif(not (VENV / "ready").exists(), reason="no NIXL (make venv-nixl)"),
]


def gpus() -> int:
    """How many this machine has."""
    return len(list(Path("/dev").glob("nvidia[0-9]*")))


@pytest.fixture(autouse=True)
def tcp(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two namespaces of one machine UCX would take shared memory. NIXL refuses a GPU without cuda_copy."""
    monkeypatch.setenv("GPUSHM_NIXL", str(VENV))
    monkeypatch.setenv("UCX_TLS", "tcp,cuda_copy" if gpus() else "tcp")


def content(node: Node) -> str:
    """The digest that the load or pull left."""
    return json.dumps(node.attributes("m")["attrs"]["gpushm.content"])


@pytest.fixture
def serving(fleet: Callable[..., list[Node]], model: Callable[..., Path]) -> tuple[Node, Relay, Node]:
    """A machine that serves a buffer, and another one."""
    node, other = fleet(2)
    node.ctl("load", model(100 * MIB + 1, tensors=7), "m")
    relay = node.relay("nixl=yes\n")
    return node, relay, other


def test_the_same_bytes_come_over_tcp(serving: tuple[Node, Relay, Node]) -> None:
    """With certificates. The bytes go over the wire, and there are hardly more of them."""
    node, relay, other = serving
    before = node.bytes_sent()
    other.ctl("pull", "--via", "nixl", relay.source("m"))
    sent = node.bytes_sent() - before
    assert 100 * MIB < sent < 110 * MIB
    other.ctl("verify", "m")
    assert content(node) == content(other)


def test_a_pull_survives_a_relay_that_is_killed(serving: tuple[Node, Relay, Node]) -> None:
    """UCX tells that the connection broke; the pull goes on with the next relay there."""
    node, relay, other = serving
    node.limit(up="200mbit")
    before = node.bytes_sent()
    puller = other.start_ctl("pull", "--via", "nixl", relay.source("m"))
    while node.bytes_sent() - before < 20 * MIB and puller.poll() is None:
        time.sleep(0.01)
    assert puller.poll() is None, puller.communicate()
    relay.end(signal.SIGKILL)
    node.unlimit()
    relay.start(relay.port)
    _, errors = puller.communicate(timeout=TIMEOUT)
    assert puller.returncode == 0, errors
    other.ctl("verify", "m")
    assert content(node) == content(other)


def test_an_interrupt_ends_a_pull(serving: tuple[Node, Relay, Node]) -> None:
    """Reads that are under way are given up."""
    node, relay, other = serving
    node.limit(up="50mbit")
    before = node.bytes_sent()
    puller = other.start_ctl("pull", "--via", "nixl", relay.source("m"))
    while node.bytes_sent() - before < 2 * MIB and puller.poll() is None:
        time.sleep(0.01)
    puller.send_signal(signal.SIGINT)
    _, errors = puller.communicate(timeout=TIMEOUT)
    assert puller.returncode in (-signal.SIGINT, 130), errors
    assert json.loads(other.ctl("ls", "--json").stdout) == []


@pytest.mark.skipif(gpus() == 0, reason="no GPU")
@pytest.mark.parametrize("config", ["nixl=yes\n", "nixl=yes\nnixl-gpu=yes\n"], ids=["ring", "direct"])
def test_gpu_memory_arrives_right(fleet: Callable[..., list[Node]], model: Callable[..., Path], config: str) -> None:
    """From one GPU to the last one of the host."""
    pools = "".join(f"[pool gpu{i}]\nkind=vmm\ndevice={i}\nsize=256M\n" for i in range(gpus()))
    node, other = fleet(2, pools=pools)
    node.ctl("load", model(100 * MIB + 1, tensors=7), "m", "--pool=gpu0")
    relay = node.relay(config)
    other.ctl("pull", "--via", "nixl", f"--pool=gpu{gpus() - 1}", relay.source("m"))
    other.ctl("verify", "m")
    assert content(node) == content(other)
