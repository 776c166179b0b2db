# SPDX-License-Identifier: MIT
"""What the READMEs say about models, as a reader would run it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import gpushm
import pytest
from conftest import ON_GPU

ROOT = Path(__file__).resolve().parents[3]
BLOCK = re.compile(r"^```python\n# needs: (?:PyTorch|NumPy)(?:, [\w, ]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"^    (gpushmctl load .*)$", re.MULTILINE)
# A model of transformers in the place of one that has gigabytes, and must be downloaded.
TINY = """
import transformers
config = transformers.LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
)
transformers.AutoModelForCausalLM.from_config(config).save_pretrained("Qwen/Qwen3-8B")
"""


def test_the_tutorial_of_models_runs(in_child: Callable[..., str]) -> None:
    found = BLOCK.findall((ROOT / "client/python/README.md").read_text())
    assert len(found) > 1
    said = in_child("\n".join(found))
    assert "torch.Size([1, 5, 64])" in said and "torch.Size([64])" in said
    assert "torch.Size([128, 8])" in said and "xxh3:" in said and "torch.Size([1, 9])" in said


@pytest.fixture
def unlinked() -> Iterator[list[str]]:
    """Names that are unlinked at the end."""
    names: list[str] = []
    yield names
    for name in names:
        gpushm.unlink(name)


def test_the_first_screen_runs(tmp_path: Path, unlinked: list[str]) -> None:
    """Its commands, and the Python of the whole page. "cuda" is the CPU where there is no GPU."""
    text = (ROOT / "README.md").read_text()
    commands = COMMAND.findall(text.partition("\n## ")[0])
    makes, *blocks = BLOCK.findall(text)
    makes, publishes, uses = makes.partition("gpushm.torch.publish")
    assert commands and publishes
    script = [
        makes,
        "import os, safetensors.torch",
        'safetensors.torch.save_file(build().state_dict(), "model.safetensors")',
        *(f"assert os.system({command!r}) == 0" for command in commands),
        publishes + uses,
        TINY,
        *(block.replace('"cuda"', '"cuda"' if ON_GPU else '"cpu"') for block in blocks),
        "assert torch.equal(model.model.norm.weight.cpu(), torch.ones(32)) and len(weights) == 4",
        'print(*(b.name for b in gpushm.ls() if not b.name.startswith("safetensors/")))',
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
    unlinked += done.stdout.splitlines()[-1].split()
    assert sorted(unlinked) == ["classifier", "qwen3", "trained"]
