# SPDX-License-Identifier: MIT
"""The example for Ray Serve, on one machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_engines import run

from daemon import Daemon


def test_four_replicas_of_serve_answer_with_one_copy(machines: list[Daemon], tmp_path: Path) -> None:
    pytest.importorskip("ray.serve")
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONWARNINGS": "ignore"}
    quiet["RAY_ADDRESS"] = "local"  # not the cluster of another test that has ended
    said = run("ray_serve.py", log=tmp_path / "said", GPUSHM_SOCKET=machines[0].socket, **quiet)
    assert any("replicas answered with one copy of 16 MiB" in line for line in said), said
