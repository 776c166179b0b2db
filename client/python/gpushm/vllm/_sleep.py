# SPDX-License-Identifier: MIT
"""The sleep backend: shared weights are unmapped, and nothing is copied; the rest sleeps as in vLLM's own backend."""

from __future__ import annotations

from vllm.device_allocator.sleep_mode_backend import CuMemBackend

from .. import _engine
from .. import torch as shared
from .._core import BadContents
from ._loader import models


class Backend(CuMemBackend):  # type: ignore[misc]
    """--sleep-mode-backend gpushm."""

    def suspend(self, level: int = 1) -> None:
        """Level 2 as level 1: the weights are in the daemon's hands either way, and what vLLM would throw away besides
        are the private copies of the model's buffers.
        """
        # The worker has waited for its GPU.
        for model in list(models):
            shared.suspend(model, idle=True)
        super().suspend(1)

    def resume(self, tags: list[str] | None = None) -> None:
        """The weights come back with the tag "weights": the same ones, or the newest generation of their name."""
        super().resume(tags)
        if tags is None or "weights" in tags:
            for model, name in list(models.items()):
                try:
                    shared.resume(model)
                except BadContents:  # of another layout
                    _engine.follow(model, name)

    def discard(self, tags: tuple[str, ...]) -> None:
        """The tag "weights" is a suspend."""
        if "weights" in tags:
            for model in list(models):
                shared.suspend(model, idle=True)
        super().discard(tuple(tag for tag in tags if tag != "weights"))
