# SPDX-License-Identifier: MIT
"""Pulls between machines by HTTPS: both sides show certificates, and say what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority
from node import BUILD, Node

pytestmark = pytest.mark.skipif(not (BUILD / "gpushm-relay").exists(), reason="gpushm-relay is not built")


def test_a_pull_takes_a_host_with_or_without_port(fleet: Callable[..., list[Node]], model: Callable[..., Path]) -> None:
    a, b = fleet(2)
    a.ctl("load", "-q", model(9 << 20), "models/m")
    # The port that is asked if the source has none.
    a.relay(port=19401)
    b.ctl("pull", "-q", "--verify", f"{a.address}/models/m")
    b.ctl("pull", "-q", f"{a.address}:19401/models/m", "again")
    digests = {
        node.attributes(name)["model"]["digest"] for node, name in ((a, "models/m"), (b, "models/m"), (b, "again"))
    }
    assert len(digests) == 1
    told = b.ctl("pull", f"{a.address}/models/none", check=False)
    assert told.returncode == 3
    assert f"https://{a.address}:19401/" in told.stderr


def test_certificates_that_do_not_fit_are_refused(
    fleet: Callable[..., list[Node]], model: Callable[..., Path], authority: Authority, foreign: Authority
) -> None:
    a, b = fleet(2)
    a.ctl("load", "-q", model(1 << 20), "m")
    source = a.relay().source("m")
    good = b.certificate
    assert good

    def refused(*options: object) -> str:
        done = b.ctl("pull", *options, source, check=False)
        assert done.returncode == 1, done.stderr
        assert b.ctl("ls", "--names-only").stdout == ""
        # No secret is told, and the machine is.
        assert a.address in done.stderr
        return done.stderr

    b.certificate = None
    refused()
    other = foreign.issue("x", "DNS:x")
    refused("--cert", other.cert, "--key", other.key)
    old = authority.expired("old", "DNS:old")
    refused("--cert", old.cert, "--key", old.key)
    # The relay's own is not signed by whom this machine trusts.
    assert "certificate" in refused("--cacert", foreign.cert, "--cert", good.cert, "--key", good.key)
    b.ctl("pull", "-q", "--cert", good.cert, "--key", good.key, source)


def test_a_relay_with_another_machines_certificate_is_refused(
    fleet: Callable[..., list[Node]], model: Callable[..., Path]
) -> None:
    a, b, c = fleet(3)
    a.ctl("load", "-q", model(1 << 20), "m")
    a.certificate = c.certificate
    done = b.ctl("pull", a.relay().source("m"), check=False)
    assert done.returncode == 1
    assert "certificate" in done.stderr
