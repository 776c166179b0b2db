# SPDX-License-Identifier: MIT
"""safetensors.flax over shared memory: load_file() attaches; what else there is is safetensors' own."""

from __future__ import annotations

import os
from typing import Any

from . import load_file as _load_file


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, Any]:
    """All arrays of a file, on the CPU over memory that processes share."""
    return _load_file(filename, framework="jax", backend=backend)


def __getattr__(name: str) -> Any:
    """save_file(), save(), load() and others."""
    import safetensors.flax

    return getattr(safetensors.flax, name)
