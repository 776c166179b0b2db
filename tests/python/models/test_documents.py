# SPDX-License-Identifier: MIT
"""What the pages say about models, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n# needs: (?:PyTorch|NumPy)(?:, [\w, ]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (gpushmctl (?:load|verify) .*)$", re.MULTILINE)


def blocks(page: str) -> str:
    """The Python of a page that needs PyTorch and no GPU."""
    return "\n".join(BLOCK.findall((ROOT / page).read_text()))


@pytest.mark.parametrize("page", ["client/models/README.md", "client/python/README.md"])
def test_what_a_page_says_of_models_runs(page: str, in_child: Callable[..., str]) -> None:
    said = in_child("import gpushm\n" + blocks(page))
    assert "torch.Size([1, 5, 64])" in said
    if page.startswith("client/models"):
        assert "torch.Size([64])" in said and "torch.Size([128, 8])" in said
        assert "xxh3:" in said and "torch.Size([1, 9])" in said


def test_the_commands_of_the_page_load_a_model(tmp_path: Path) -> None:
    """What the page then attaches to. A pull is run by tests/nodes."""
    commands = COMMAND.findall((ROOT / "client/models/README.md").read_text())
    assert [command.split()[1] for command in commands] == ["load", "verify"]
    script = [
        "import os, torch, safetensors.torch, gpushm.torch",
        "build = lambda: torch.nn.Linear(4, 4)",
        'safetensors.torch.save_file(build().state_dict(), "model.safetensors")',
        *(f"assert os.system({command!r}) == 0" for command in commands),
        'assert gpushm.torch.attach("classifier", build).weight.shape == (4, 4)',
        'gpushm.unlink("classifier")',
    ]
    env = {"PATH": f"{Path(os.environ['BUILD']).resolve()}:{os.environ['PATH']}"}
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(script)],
        cwd=tmp_path,
        env=os.environ | env,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
