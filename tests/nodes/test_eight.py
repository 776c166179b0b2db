# SPDX-License-Identifier: MIT
"""Eight machines, filled from one whose link is slow."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from namespaces import sent_by
from node import Node
from pulling import MB, await_here, finish


def fill(
    machines: Callable[[int], list[Node]], file: Path, n: int, config: str, *, insecure: bool
) -> tuple[float, list[int]]:
    """The seconds until n machines have the model from one whose link has 160 Mbit/s, and what each has sent."""
    a, *nodes = machines(n + 1)
    a.ctl("load", file, "model")
    first = a.relay(config, insecure=insecure)
    # Its digests are computed once.
    a.run("curl", "-sf", *a.tls(), f"{first.url}/v1/manifests/model")
    for node in nodes:
        node.ctl("ls")
    a.limit(up="160mbit")
    before = sent_by([a, *nodes])
    start = time.monotonic()
    for node in nodes:
        node.relay(f"{config}[pull model]\nsource={first.source('model')}\n", insecure=insecure)
    for node in nodes:
        await_here(node)
    seconds = time.monotonic() - start
    sent = [now - then for now, then in zip(sent_by([a, *nodes]), before, strict=True)]
    finish(nodes, file)
    return seconds, sent


def rounds(machines: Callable[[int], list[Node]], file: Path, config: str, *, insecure: bool) -> float:
    """How many times as long as one machine eight take."""
    one, _ = fill(machines, file, 1, config, insecure=insecure)
    eight, sent = fill(machines, file, 8, config, insecure=insecure)
    files = [round(s / file.stat().st_size, 2) for s in sent]
    print(
        f"{config.strip()}: one {one:.2f} s, eight {eight:.2f} s: {eight / one:.2f} rounds; files sent by each: {files}"
    )
    return eight / one


def test_eight_machines_take_less_than_three_and_a_half_rounds(
    machine: Callable[..., Node], model: Callable[..., Path]
) -> None:
    assert rounds(lambda n: [machine() for _ in range(n)], model(32 * MB), "fan-out=2\n", insecure=True) < 3.5


@pytest.mark.deep
@pytest.mark.parametrize("config", ["fan-out=1\n", "max-transfers=1\n", "max-transfers=2\n"])
def test_eight_in_a_chain_or_a_tree_take_less_than_3_5_rounds(
    machine: Callable[..., Node], model: Callable[..., Path], config: str
) -> None:
    assert rounds(lambda n: [machine() for _ in range(n)], model(40 * MB), config, insecure=True) < 3.5


@pytest.mark.deep
def test_eight_machines_with_tls_take_3_5_rounds(fleet: Callable[..., list[Node]], model: Callable[..., Path]) -> None:
    assert rounds(fleet, model(40 * MB), "", insecure=False) < 3.5
