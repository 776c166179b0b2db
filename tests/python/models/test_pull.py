# SPDX-License-Identifier: MIT
"""A published module is attached to where its buffer was pulled from a relay."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gpushm
import gpushm.torch as shared
import pytest
import torch
from modules import Tied, seeded, tokens

sys.path.insert(0, str(Path(__file__).parent.parent))

from daemon import BUILD

RELAY = BUILD / "gpushm-relay"

pytestmark = pytest.mark.skipif(not RELAY.exists(), reason="gpushm-relay is not built")


@pytest.fixture
def relay(tmp_path: Path) -> Iterator[str]:
    """Where this machine's relay offers its buffers: http://127.0.0.1:PORT/v1/buffers/."""
    config = tmp_path / "relay.conf"
    config.write_text(f"[relay]\nlisten=127.0.0.1:0\nsocket={os.environ['GPUSHM_SOCKET']}\n")
    with subprocess.Popen([RELAY, "--config", config], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = ""
        while not (found := re.search(r"http://127.0.0.1:\d+", said)):
            line = process.stderr.readline()
            assert line, f"the relay has ended: {said}"
            said += line
        yield f"{found[0]}/v1/buffers/"
        process.terminate()


def test_a_pulled_module_computes_the_same(name: str, device: str, relay: str) -> None:
    model = seeded(device)
    with shared.publish(name, model) as tensors:
        pool = tensors.buffer.pool
    with gpushm.pull(relay + name, "pulled", pool=pool):
        got = shared.attach("pulled", Tied)
        # Tied weights are one tensor, and the fingerprint is that of the module.
        assert got.head.weight is got.embed.weight
        assert torch.equal(got(tokens(device)), model(tokens(device)))
        with pytest.raises(gpushm.errors.LayoutError, match="class"):
            shared.attach("pulled", lambda: torch.nn.Linear(2, 3))
        del got
    gpushm.unlink("pulled")


def test_a_pulled_tensor_is_contiguous_with_the_same_values(name: str, device: str, relay: str) -> None:
    model = torch.nn.Conv2d(3, 4, 5).to(device).to(memory_format=torch.channels_last)
    with shared.publish(name, model) as tensors:
        pool = tensors.buffer.pool
        assert not tensors["weight"].is_contiguous()
    with gpushm.pull(relay + name, "pulled", pool=pool):
        got = shared.attach("pulled", torch.nn.Conv2d(3, 4, 5, device="meta"))
        # Its strides are not those of the origin any more.
        assert got.weight.is_contiguous()
        assert torch.equal(got.weight, model.weight)
        del got
    gpushm.unlink("pulled")
