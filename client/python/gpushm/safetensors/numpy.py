# SPDX-License-Identifier: MIT
"""safetensors.numpy over shared memory: load_file() attaches; what else there is is safetensors' own."""

from __future__ import annotations

import os
from typing import Any

from . import load_file as _load_file


def load_file(filename: str | os.PathLike[str], *, backend: str = "mmap") -> dict[str, Any]:
    """All arrays of a file, over memory that processes share. Pages that are written to become this process's own."""
    return _load_file(filename, framework="np", backend=backend)


def __getattr__(name: str) -> Any:
    """save_file(), save(), load() and others."""
    import safetensors.numpy

    return getattr(safetensors.numpy, name)
