# SPDX-License-Identifier: MIT
"""The loader: the first engine loads from disk and publishes, and the others attach, without a copy."""

from __future__ import annotations

import inspect
import weakref
from typing import Any

import torch
from vllm.distributed import (
    get_dp_group,
    get_pp_group,
    get_tensor_model_parallel_rank,
    get_tensor_model_parallel_world_size,
)
from vllm.logger import init_logger
from vllm.model_executor.layers.rotary_embedding import _ROPE_DICT
from vllm.model_executor.model_loader.base_loader import BaseModelLoader
from vllm.model_executor.model_loader.default_loader import DefaultModelLoader
from vllm.model_executor.model_loader.utils import initialize_model, process_weights_after_loading
from vllm.model_executor.model_loader.weight_cache import protocol
from vllm.model_executor.model_loader.weight_cache.utils import export_model_attrs
from vllm.model_executor.utils import weights_already_processed
from vllm.utils.torch_utils import set_default_torch_dtype

from .. import _engine

logger = init_logger("vllm.gpushm")

# vLLM makes a loader to ask for external memory, and another one to load: the lease is held from the one to the other.
_held: dict[str, Any] = {}
models: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()


class Loader(_engine.Loader, BaseModelLoader):  # type: ignore[misc]
    """--load-format gpushm."""

    from_disk = DefaultModelLoader

    def get_external_weight_memory(self, vllm_config: Any) -> int:
        """Bytes of weights that another engine has made; vLLM takes them out of its budget."""
        configs = [vllm_config.model_config]
        if vllm_config.speculative_config is not None:
            configs.append(vllm_config.speculative_config.draft_model_config)
        total = 0
        for config in configs:
            name = _name(vllm_config, config)
            found = _engine.open_model(name, _device(vllm_config, self.load_config))
            if found is not None:
                _held[name] = found
                total += int(found.nbytes)
        return total

    def load_weights(self, model: torch.nn.Module, model_config: Any) -> None:
        """For reload_weights(): the newest generation of the name. A model that is not shared loads from disk."""
        name = models.get(model)
        if name is None:
            self._disk().load_weights(model, model_config)
        elif _engine.follow(model, name):
            logger.info("gpushm: the model follows the newest generation of %s", name)

    def load_model(self, vllm_config: Any, model_config: Any, prefix: str = "") -> torch.nn.Module:
        """Attaches to the model of these configurations; loads it, if no engine has it."""
        device = _device(vllm_config, self.load_config)
        # Before the model is built: a build changes the configuration.
        name = _name(vllm_config, model_config)
        ranks = vllm_config.parallel_config.tensor_parallel_size * vllm_config.parallel_config.pipeline_parallel_size

        def load() -> torch.nn.Module:
            made: torch.nn.Module = self._disk().load_model(vllm_config, model_config, prefix)
            return made

        def attach(buffer: Any) -> torch.nn.Module:
            return self._attached(buffer, device, vllm_config, model_config, prefix)

        size = _engine.size_of(model_config.model, ranks)
        try:
            model, _ = _engine.shared_model(name, device, self._options, logger, size, load, attach, _flags)
        finally:
            _held.pop(name, None)
        if _engine.is_shared(model):
            models[model] = name
        return model

    def _attached(
        self, buffer: Any, device: torch.device, vllm_config: Any, model_config: Any, prefix: str
    ) -> torch.nn.Module:
        layers = vllm_config.compilation_config.static_forward_context
        before = set(layers)
        try:
            with set_default_torch_dtype(model_config.dtype):
                with _engine.kept_apart(_ROPE_DICT), torch.device("meta"):
                    model: torch.nn.Module = initialize_model(
                        vllm_config=vllm_config, model_config=model_config, prefix=prefix
                    )
                notes = _engine.attach_model(model, buffer)
                with weights_already_processed():
                    process_weights_after_loading(model, model_config, device)
            _engine.drop_leftovers(model, notes, device)
        except BaseException:
            # One configuration takes one model: what this one has registered would refuse the load from disk.
            for key in set(layers) - before:
                del layers[key]
            raise
        return model.eval()


def _flags(model: torch.nn.Module) -> dict[str, bool] | None:
    """What a load leaves on the model itself; None: its quantisation can't be shared after its post-processing."""
    try:
        protocol.check_ipc_quant_support(model)
    except protocol.UnsupportedQuantForIPCError as error:
        logger.warning("gpushm: not shared: %s `python -m gpushm.share -- vllm` shares the raw files.", str(error))
        return None
    found: dict[str, bool] = export_model_attrs(model)
    return found


def _device(vllm_config: Any, load_config: Any) -> torch.device:
    return torch.device(load_config.device or vllm_config.device_config.device)


def _name(vllm_config: Any, model_config: Any) -> str:
    """Of vLLM's key for a cache of weights. What this version of the key has not, is left out."""
    parallel, spec = vllm_config.parallel_config, vllm_config.speculative_config
    pp, dp = get_pp_group(), get_dp_group()
    fields = {
        "cache_config": vllm_config.cache_config,
        "tp_size": get_tensor_model_parallel_world_size(),
        "tp_rank": get_tensor_model_parallel_rank(),
        "pp_size": pp.world_size,
        "pp_rank": pp.rank_in_group,
        "dp_size": dp.world_size,
        "dp_rank": dp.rank_in_group,
        "is_draft": spec is not None and model_config is spec.draft_model_config,
        "enable_expert_parallel": parallel.enable_expert_parallel,
        "expert_placement_strategy": parallel.expert_placement_strategy,
        "kernel_config": vllm_config.kernel_config,
    }
    make = protocol.WeightCacheKey.from_model_config
    known = inspect.signature(make).parameters
    key = make(model_config, **{field: value for field, value in fields.items() if field in known})
    return _engine.name_of("vllm", f"{key} {torch.__version__}", _device(vllm_config, vllm_config.load_config))
