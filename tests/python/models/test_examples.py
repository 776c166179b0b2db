# SPDX-License-Identifier: MIT
"""The examples of client/examples/models, as a reader would run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gpushm
import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "client/examples/models"
# What they print where all is well, in order.
SAID = {
    "prefork.py": ["workers answered", "share 16 MiB"],
    "swap.py": ["version 2: 500 answers", "version 4: 500 answers"],
    "backend.py": ["2 instances give the answer"],
    "generate.py": ["processes share", "making the module and attaching took"],
    "follow.py": ["generation 1: 4 followers", "generation 5: 4 followers"],
}


def test_an_example_is_not_run() -> None:
    assert sorted(SAID) == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("example", SAID)
def test_an_example_fails_or_leaves_buffers(example: str) -> None:
    done = subprocess.run(
        [sys.executable, EXAMPLES / example], capture_output=True, text=True, env=dict(os.environ), timeout=400
    )
    assert done.returncode == 0, done.stdout + done.stderr
    at = -1
    for said in SAID[example]:
        at = done.stdout.index(said, at + 1)
    assert gpushm.ls() == []
    assert len((EXAMPLES / example).read_text().splitlines()) <= 60
    print(done.stdout)
