# SPDX-License-Identifier: MIT
"""Whether a model that was attached is equal to one that was loaded from disk: names, shapes, strides, bytes, marks.

    python -m gpushm.parity MODEL --engine vllm|sglang|transformers

loads the model from disk, then twice through gpushm, in one process, and prints what differs. Exits with 1 if anything
does. No quantisation method is called supported without it.
"""

from __future__ import annotations

import argparse
import hashlib
import sys
from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

import torch

from . import _core
from ._engine import loose_tensors, notes_of, plain_attributes
from .torch import _attach

ENGINES = ("vllm", "sglang", "transformers")
# Marks that a loader needs for itself, and gpushm's own.
_OF_THE_LOAD = {"_is_hf_initialized", "_derived_weight_cache_error"}


def described(model: torch.nn.Module, modules: bool = False) -> dict[str, dict[str, Any]]:
    """All that an engine may look at, of each tensor of a model; modules: and the marks on its modules."""
    notes = notes_of(model)
    described: dict[str, dict[str, Any]] = {
        slot.name: {
            "shape": tuple(slot.tensor.shape),
            "stride": slot.tensor.stride(),
            "dtype": str(slot.tensor.dtype),
            "device": slot.tensor.device.type,
            "bytes": _digest(slot.tensor),
            "is_parameter": notes[slot.name].is_parameter,
            "tied to": notes[slot.name].alias,
            "marks": {k: v for k, v in notes[slot.name].marks.items() if k not in _OF_THE_LOAD},
        }
        for slot in _attach.slots_of(model)
    }
    if not modules:
        return described
    for name, value in plain_attributes(model).items():
        if name.rpartition(".")[2] not in _OF_THE_LOAD:
            described[name] = {"value": value}
    return described | {name: {"a tensor": True} for name in loose_tensors(model)}


def _digest(tensor: torch.Tensor) -> str:
    raw = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().tobytes()).hexdigest()[:16]


def compared(disk: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """A line for each tensor that is not the same."""
    found = [f"{name} is there after a load from disk only" for name in disk if name not in other]
    found += [f"{name} is there after an attach only" for name in other if name not in disk]
    for name in disk:
        if name in other and disk[name] != other[name]:
            what = [key for key, value in disk[name].items() if other[name][key] != value]
            said = ", ".join(f"{key} {disk[name][key]} and {other[name][key]}" for key in what)
            found.append(f"{name} differs: {said}")
    return found


def _vllm(path: str) -> list[torch.nn.Module]:
    import os

    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader import get_model_loader

    from . import vllm

    vllm.register()
    found = []
    for load_format in ("auto", "gpushm", "gpushm"):
        config = EngineArgs(model=path, load_format=load_format, enforce_eager=True).create_engine_config()
        with set_current_vllm_config(config):
            if not torch.distributed.is_initialized():
                backend = "nccl" if torch.cuda.is_available() else "gloo"
                init_distributed_environment(1, 0, f"file:///tmp/gpushm-parity-{os.getpid()}", 0, backend=backend)
                initialize_model_parallel(1, 1, backend=backend)
            loader = get_model_loader(config.load_config)
            found.append(loader.load_model(vllm_config=config, model_config=config.model_config))
    return found


def _sglang(path: str) -> list[torch.nn.Module]:
    import os

    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.distributed.parallel_state import init_distributed_environment, initialize_model_parallel
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.model_loader.loader import get_model_loader
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    from . import sglang

    sglang.register()
    device, backend = ("cuda", "nccl") if torch.cuda.is_available() else ("cpu", "gloo")
    args = ServerArgs(model_path=path, device=device, load_format="private")
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=0, gpu_id=0))
    if not torch.distributed.is_initialized():
        initialize_moe_config()
        where = f"file:///tmp/gpushm-parity-{os.getpid()}"
        init_distributed_environment(1, 0, where, local_rank=0, backend=backend)
        initialize_model_parallel()
        initialize_dp_attention(args)
    found = []
    for load_format in ("auto", "private", "private"):
        config = ModelConfig.from_server_args(args)
        loader = get_model_loader(LoadConfig(load_format=load_format), config)
        found.append(loader.load_model(model_config=config, device_config=DeviceConfig(device, 0)))
    return found


def _transformers(path: str) -> list[torch.nn.Module]:
    from transformers import AutoModelForCausalLM

    from .torch import attach, publish

    device = "cuda" if torch.cuda.is_available() else "cpu"
    disk = AutoModelForCausalLM.from_pretrained(path, dtype="auto").to(device).eval()
    name = f"~/parity-{hashlib.sha256(path.encode()).hexdigest()[:16]}"
    with publish(name, disk, replace=True):
        config, dtype = disk.config, next(disk.parameters()).dtype
        made = attach(name, lambda: AutoModelForCausalLM.from_config(config, dtype=dtype).eval())
        _core.unlink(name)
    return [disk, made]


def main(words: list[str] | None = None) -> int:
    """The program."""
    parser = argparse.ArgumentParser(prog="python -m gpushm.parity", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("model", help="a folder with a model")
    parser.add_argument("--engine", choices=ENGINES, required=True)
    given = parser.parse_args(words)
    made = {"vllm": _vllm, "sglang": _sglang, "transformers": _transformers}[given.engine](given.model)
    # vLLM builds the marks on modules again, and this loader of SGLang carries them.
    disk, *others = [described(model, modules=given.engine == "sglang") for model in made]
    versions = " ".join(f"{name} {version(name)}" for name in (given.engine, "torch"))
    failures = [line for other in others for line in compared(disk, other)]
    print("\n".join(dict.fromkeys(failures)) or f"equal: {len(disk)} tensors, {versions}")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
