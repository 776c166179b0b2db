# SPDX-License-Identifier: MIT
"""vLLM with weights that outlive it: a loader, a sleep backend, and weight transfer. See client/python/ENGINES.md.

    vllm serve MODEL --load-format gpushm --enable-sleep-mode --sleep-mode-backend gpushm

vLLM finds register() by the entry point vllm.general_plugins. `import gpushm` does not import this module.
"""

from __future__ import annotations

__all__ = ["register"]


def register() -> None:
    """Tells vLLM's registries of the load format, the sleep backend and the transfer backend "gpushm".

    vLLM calls it in each of its processes, and may do so twice.
    """
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor import model_loader

    if "gpushm" not in model_loader._LOAD_FORMAT_TO_MODEL_LOADER:
        from ._loader import Loader

        model_loader.register_model_loader("gpushm")(Loader)
    if "gpushm" not in SleepModeBackendFactory._registry:
        SleepModeBackendFactory.register_backend("gpushm", "gpushm.vllm._sleep", "Backend")
    if "gpushm" not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine("gpushm", "gpushm.vllm._transfer", "Engine")
