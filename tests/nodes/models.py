# SPDX-License-Identifier: MIT
"""Files to load."""

from __future__ import annotations

import json
import random
from pathlib import Path


def write_model(path: Path, size: int, *, tensors: int = 3, seed: int = 0) -> None:
    """A safetensors file whose tensors have `size` bytes in all, which the seed decides."""
    header, at = {}, 0
    for i in range(tensors):
        end = size * (i + 1) // tensors
        header[f"layers.{i}.weight"] = {"dtype": "U8", "shape": [end - at], "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as f:
        f.write(len(text).to_bytes(8, "little") + text + random.Random(seed).randbytes(size))
