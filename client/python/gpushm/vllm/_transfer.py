# SPDX-License-Identifier: MIT
"""Weight transfer: a trainer publishes a buffer and sends its name; no tensor is sent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from vllm.distributed.weight_transfer.base import WeightTransferEngine

from .. import _engine
from .. import torch as shared
from ._loader import models


@dataclass
class Info:
    """What both requests carry: init_weight_transfer_engine the name for updates that have none."""

    name: str | None = None


class Engine(WeightTransferEngine):  # type: ignore[misc]
    """WeightTransferConfig(backend="gpushm").

    The buffer has a model as vLLM has it after a load (gpushm.vllm's own), which is followed without a copy; or a
    checkpoint's names, as a trainer has them, which are loaded as from disk, if the model is not shared.
    """

    init_info_cls = update_info_cls = Info

    def init_transfer_engine(self, init_info: Any) -> None:
        """Remembers the name."""
        self._name: str | None = init_info.name

    def start_weight_update(self) -> None:
        """Prepares a model that is not shared for tensors of a checkpoint."""
        if self.model not in models:
            from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

            initialize_layerwise_reload(self.model)

    def receive_weights(self, update_info: Any) -> None:
        """Follows the name."""
        name = update_info.name or self._name
        if name is None:
            raise ValueError("neither init_info nor update_info says the name of a buffer")
        if self.model in models:
            _engine.follow(self.model, name)
            return
        with shared.open(name) as tensors:
            self.model.load_weights(tensors.items())

    def finish_weight_update(self) -> None:
        """Ends what start_weight_update() has begun."""
        if self.model not in models:
            from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

            finalize_layerwise_reload(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing is held."""
