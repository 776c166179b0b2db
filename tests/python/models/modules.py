# SPDX-License-Identifier: MIT
"""Modules for tests, in a file of their own so that spawned processes find them."""

from __future__ import annotations

from dataclasses import dataclass

import torch

HIDDEN = 8


@dataclass
class Config:
    """As a model's configuration."""

    vocabulary: int = 16
    hidden: int = HIDDEN
    layers: int = 2


class Tied(torch.nn.Module):
    """A small model with what makes sharing hard: a tied weight, a buffer that is not persistent."""

    def __init__(self, config: Config | None = None, dtype: torch.dtype = torch.float32) -> None:
        super().__init__()
        self.config = config or Config()
        hidden = self.config.hidden
        self.embed = torch.nn.Embedding(self.config.vocabulary, hidden, dtype=dtype)
        self.layers = torch.nn.ModuleList(
            torch.nn.Linear(hidden, hidden, dtype=dtype) for _ in range(self.config.layers)
        )
        self.head = torch.nn.Linear(hidden, self.config.vocabulary, bias=False, dtype=dtype)
        self.head.weight = self.embed.weight
        self.register_buffer("inv_freq", 1.0 / (torch.arange(hidden) + 1), persistent=False)
        self.register_buffer("steps", torch.tensor(7), persistent=True)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Logits."""
        x = self.embed(tokens) * self.inv_freq.to(self.embed.weight.dtype)
        for layer in self.layers:
            x = torch.relu(layer(x))
        return self.head(x)


def tokens(device: str | torch.device) -> torch.Tensor:
    """An input for Tied."""
    return torch.arange(12, device=device).reshape(3, 4) % 16


def seeded(device: str = "cpu", dtype: torch.dtype = torch.float32, seed: int = 1) -> Tied:
    """A model with the same weights in each process."""
    torch.manual_seed(seed)
    return Tied(dtype=dtype).to(device)
