# SPDX-License-Identifier: MIT
"""The example of parked services, over the fake driver or a GPU, whose driver must be 570 or later."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from gpus import GPUS

from daemon import BUILD, Daemon

pytestmark = pytest.mark.skipif(not GPUS, reason="no GPU")


def test_twenty_parked_services_fail_no_request(tmp_path: Path) -> None:
    shared = {"FAKECUDA_STATE": f"{tmp_path}/gpus"}  # for the fake driver
    daemon = Daemon("[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n", **shared)
    example = Path(__file__).parents[2] / "client/python/examples/parked_services.py"
    env = os.environ | shared | {"GPUSHM_SOCKET": daemon.socket, "GPUSHMCTL": str(BUILD / "gpushmctl")}
    try:
        done = subprocess.run(
            [sys.executable, example, "gpu", "20", "60"],
            env=env, capture_output=True, text=True, check=False, timeout=180,
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.startswith("60 requests of 20 services, none failed; ")
    finally:
        daemon.remove()
