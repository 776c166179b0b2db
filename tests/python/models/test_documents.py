# SPDX-License-Identifier: MIT
"""The tutorial's part about models, as a reader would run it."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

README = Path(__file__).resolve().parents[3] / "client/python/README.md"


def test_the_tutorial_of_models_does_not_run(in_child: Callable[..., str]) -> None:
    parts = re.compile(r"^```python\n# needs: PyTorch(?:, [\w, ]*)?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
    found = parts.findall(README.read_text())
    assert len(found) > 1
    said = in_child("\n".join(found))
    assert "torch.Size([1, 5, 64])" in said and "torch.Size([64])" in said
    assert "torch.Size([128, 8])" in said and "xxh3:" in said and "torch.Size([1, 9])" in said
