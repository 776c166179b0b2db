# SPDX-License-Identifier: MIT
"""safetensors.torch over shared memory: load_file() attaches; what else there is is safetensors' own."""

from __future__ import annotations

import os
from typing import Any

from . import _copies
from . import load_file as _load_file


def load_file(filename: str | os.PathLike[str], device: str | int = "cpu", *, backend: str = "mmap") -> dict[str, Any]:
    """All tensors of a file, over memory that processes share. On the CPU, pages that are written to become this
    process's own; tensors on a GPU must not be written to.
    """
    return _load_file(filename, device, framework="pt", backend=backend)


def load_model(
    model: Any,
    filename: str | os.PathLike[str],
    strict: bool = True,
    device: str | int = "cpu",
    *,
    backend: str = "mmap",
) -> Any:
    """safetensors' own, which copies the tensors into the model's memory: a FallbackWarning says what shares them."""
    import safetensors.torch

    _copies.say("safetensors", "load_model")
    return safetensors.torch.load_model(model, filename, strict, device, backend=backend)


def __getattr__(name: str) -> Any:
    """save_file(), save(), load(), save_model() and others."""
    import safetensors.torch

    return getattr(safetensors.torch, name)
