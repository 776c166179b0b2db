# SPDX-License-Identifier: MIT
"""Relays that pull: they serve what they have meanwhile, and send each other's readers on."""

from __future__ import annotations

import hashlib
import http.client
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from node import BUILD, TIMEOUT, Node, Relay

MB = 1 << 20
BLOCK = 4 * MB


def offer(node: Node, model: Path, config: str = "", name: str = "model") -> Relay:
    """A machine that has the model, and a relay."""
    node.ctl("load", model, name)
    return node.relay(config, insecure=True)


def pulling(node: Node, source: str, *, config: str = "", name: str = "model", more: str = "") -> Relay:
    """A relay that pulls."""
    return node.relay(f"{config}[pull {name}]\nsource={source}\n{more}", insecure=True)


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request."""
    host, path = re.fullmatch(r"http://([^/]+)(/.*)", url).groups()  # type: ignore[union-attr]
    c = http.client.HTTPConnection(host, timeout=TIMEOUT)
    c.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, {k.lower(): v for k, v in r.getheaders()}, body


def sha256(relay: Relay, name: str = "model") -> str:
    """Of all that a relay sends."""
    status, _, body = get(relay.source(name))
    assert status == 200, body
    return hashlib.sha256(body).hexdigest()


def await_here(node: Node, name: str = "model") -> None:
    """Until the buffer is published on that machine."""
    node.ctl("wait", name, "--timeout", TIMEOUT)


def finish(nodes: list[Node], model: Path, name: str = "model") -> None:
    """Waits for all, and compares all bytes."""
    expected = model.read_bytes()[-MB:]
    for node in nodes:
        await_here(node, name)
        node.ctl("verify", name)
        out = node.run(BUILD / "gpushmctl", "save", name, "-", env=node.env, text=False).stdout
        assert hashlib.sha256(out[-MB:]).digest() == hashlib.sha256(expected).digest()


def test_a_relay_pulls_a_buffer_and_offers_it(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    a, b, c = machine(), machine(), machine()
    file = model(10 * MB)
    first = offer(a, file)
    second = pulling(b, first.source("model"))
    third = pulling(c, second.source("model"), name="renamed")
    finish([b], file)
    finish([c], file, "renamed")
    # Equal on all machines, so that ranges of several of them mix.
    tags = {get(r.source(n), Range="bytes=0-0")[1]["etag"] for r, n in [(first, "model"), (second, "model"), (third, "renamed")]}
    assert len(tags) == 1
    assert sha256(first) == sha256(second) == sha256(third, "renamed")


def fill(machine: Callable[..., Node], file: Path, n: int, rate: str, config: str) -> tuple[float, list[int], Node]:
    """The seconds until n machines have the model from one whose link has that rate, and what each has sent."""
    a = machine()
    first = offer(a, file, config)
    first.source("model")
    assert get(f"{first.url}/v1/manifests/model")[0] == 200  # its digests are computed once
    nodes = [machine() for _ in range(n)]
    for node in nodes:
        node.daemon  # noqa: B018
    a.limit(up=rate)
    before = [m.bytes_sent() for m in [a, *nodes]]
    start = time.monotonic()
    for node in nodes:
        pulling(node, first.source("model"), config=config)
    for node in nodes:
        await_here(node)
    seconds = time.monotonic() - start
    sent = [m.bytes_sent() - b for m, b in zip([a, *nodes], before, strict=True)]
    finish(nodes, file)
    return seconds, sent, a


@pytest.mark.parametrize("config", ["fan-out=1\n", "fan-out=2\n", "max-transfers=1\n", "max-transfers=2\n"])
def test_eight_machines_take_less_than_three_and_a_half_rounds(
    machine: Callable[..., Node], model: Callable[..., Path], config: str
) -> None:
    file = model(40 * MB)
    one, _, _ = fill(machine, file, 1, "160mbit", config)
    eight, sent, _ = fill(machine, file, 8, "160mbit", config)
    print(f"one {one:.2f} s, eight {eight:.2f} s: {eight / one:.2f} rounds; the source sent {sent[0] / 40 / MB:.2f} files")
    print([round(s / 40 / MB, 2) for s in sent])
    assert eight < 3.5 * one
