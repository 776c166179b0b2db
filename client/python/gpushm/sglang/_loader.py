# SPDX-License-Identifier: MIT
"""The loader: the first engine loads from disk and publishes, and the others attach, without a copy."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from sglang.srt.layers.rotary_embedding.factory import _ROPE_DICT
from sglang.srt.model_loader.loader import (
    BaseModelLoader,
    DefaultModelLoader,
    _get_quantization_config,
    _initialize_model,
)
from sglang.srt.model_loader.utils import set_default_torch_dtype
from sglang.srt.runtime_context import get_exec, get_parallel
from sglang.srt.weight_cache import protocol

from .. import _engine, _models

logger = logging.getLogger("sglang.gpushm")

# Fields of SGLang's key that its parallel context has under the same name.
_OF_PARALLEL = (
    "tp_size", "tp_rank", "pp_size", "pp_rank", "dp_size", "moe_dp_size", "moe_dp_rank", "moe_ep_rank", "attn_dp_size",
    "enable_dp_lm_head", "attn_cp_size", "moe_dense_tp_size",
)  # fmt: skip
# Options that choose how weights are laid out, and that SGLang's key leaves out: the ends of their names.
_LAYOUT = ("_runner_backend", "_gemm_backend", "ep_num_redundant_experts", "init_expert_location")
# What SGLang answers to a request that would write to the weights.
_READ_ONLY = "the weights are shared by gpushm, and read-only: use another --load-format to update them"


class Loader(_engine.Loader, BaseModelLoader):  # type: ignore[misc]
    """--load-format private."""

    from_disk = DefaultModelLoader

    def load_model(self, *, model_config: Any, device_config: Any) -> torch.nn.Module:
        """Attaches to the model of this configuration; loads it, if no engine has it."""
        device = torch.device(device_config.device)

        def load() -> torch.nn.Module:
            made: torch.nn.Module = self._disk().load_model(model_config=model_config, device_config=device_config)
            return made

        def attach(buffer: Any) -> torch.nn.Module:
            return self._attached(buffer, device, model_config)

        method, quant = _quantisation(model_config)
        why = _why_not(method, quant)
        if why:
            logger.warning("gpushm: not shared: %s `python -m gpushm.share -- sglang` shares the raw files.", why)
            return load()
        folder, files, _ = self._disk()._prepare_weights(model_config.model_path, model_config.revision, True)
        # Before the model is built: a build changes the configuration.
        name = _engine.name_of("sglang", self._key(model_config, method, quant, files), device)
        size = _engine.size_of(folder, get_parallel().tp_size * get_parallel().pp_size)
        was_there = _models.published(name) is not None
        model, attached = _engine.shared_model(name, device, self._options, logger, size, load, attach, _flags)
        if _engine.is_shared(model):
            model._derived_weight_cache_error = _READ_ONLY
            # SGLang measured the free memory before this: what was in use then, it takes for its own.
            self.preloaded_weights_bytes = int(attached.nbytes) if attached and was_there else 0
        return model

    def _key(self, model_config: Any, method: str, quant: Any, files: Iterable[str]) -> str:
        """SGLang's key for a cache of weights, and what that leaves out: the files, the configuration, the backends."""
        parallel, architectures = get_parallel(), model_config.hf_config.architectures
        key = protocol.CacheConfig(
            **{field: getattr(parallel, field) for field in _OF_PARALLEL},
            model_path=model_config.model_path,
            model_arch=architectures[0] if architectures else "",
            ep_size=parallel.moe_ep_size,
            moe_a2a_backend=get_exec().moe.moe_a2a_backend,
            quant_method=method,
            quant_config_hash=protocol.hash_quant_config(quant),
            dtype=str(model_config.dtype),
            revision=model_config.revision or "",
            **protocol.compute_env_stamp(),
        )
        stats = {file: Path(file).stat() for file in sorted(files)}
        more = {
            "files": {file: (stat.st_size, stat.st_mtime_ns) for file, stat in stats.items()},
            "config": model_config.hf_config.to_dict(),
            "length": model_config.context_len,
            "draft": (model_config.is_draft_model, self.load_config.draft_model_idx),
            "layout": {name: value for name, value in _options_of(get_exec()) if name.endswith(_LAYOUT)},
            "sglang": version("sglang"),
        }
        return json.dumps([key.to_dict(), more], sort_keys=True, default=str)

    def _attached(self, buffer: Any, device: torch.device, model_config: Any) -> torch.nn.Module:
        quant = _get_quantization_config(model_config, self.load_config)
        with set_default_torch_dtype(model_config.dtype), _engine.kept_apart(_ROPE_DICT), torch.device("meta"):
            model: torch.nn.Module = _initialize_model(model_config, self.load_config, quant)
        # SGLang can't be told to leave out what post-processing does to weights: its marks come from the buffer.
        notes = _engine.attach_model(model, buffer)
        _engine.drop_leftovers(model, notes, device)
        return model.eval()


def _quantisation(model_config: Any) -> tuple[str, Any]:
    """Method and configuration, as SGLang's key has them."""
    quant = getattr(model_config.hf_config, "quantization_config", None)
    method = protocol.get_quant_method_name(model_config.quantization)
    return method or protocol.get_quant_method_name(quant), quant


def _why_not(method: str, quant: Any) -> str | None:
    """Why the model can't be shared; None: it can."""
    if not protocol.is_ipc_quant_supported(method, quant):
        return f"nobody has shown that weights of the method {method!r} can be shared after their post-processing."
    options = dict(_options_of(get_exec()))
    moved = [name for name in ("moe.enable_eplb", "offload.cpu_offload_gb") if options.get(name)]
    return f"{moved[0]} moves weights." if moved else None


def _options_of(bag: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Names and values of all options of a part of SGLang's configuration."""
    for name, value in bag._fields.items():
        yield path + name, value
    for name, inner in bag._subs.items():
        yield from _options_of(inner, f"{path}{name}.")


def _flags(model: torch.nn.Module) -> dict[str, Any] | None:
    """The marks of the load; None: it has made tensors that no buffer has."""
    loose = _engine.loose_tensors(model)
    if loose:
        logger.warning("gpushm: not shared: tensors that are plain attributes: %s", loose[:8])
        return None
    return _engine.plain_attributes(model)
