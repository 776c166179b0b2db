# SPDX-License-Identifier: MIT
"""gpushm.ray between two machines: network namespaces."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytest.importorskip("ray")

from conftest import ROOT


def test_an_object_crosses_the_network_once_for_all_readers_of_a_machine() -> None:
    words = [sys.executable, ROOT / "tests/bench/ray_nodes.py", "--mib=32", "--rounds=1"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600)
    if done.returncode == 77:
        pytest.skip(done.stdout)
    row = re.search(r"gpushm \|.*\| ([0-9.]+) \|", done.stdout)
    assert done.returncode == 0 and row, done.stdout + done.stderr
    assert 1 <= float(row[1]) < 1.2
