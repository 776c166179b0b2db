# SPDX-License-Identifier: MIT
"""What SGLang makes of tiny models with its own configuration, loaders and post-processing: on the GPU, if PyTorch has
one, else on the CPU.

Without its kernels: a machine with a GPU imports them, and here nothing calls them. Not by its CPU engine
either: that needs kernels which no package index has. The Python files take the path of a machine whose platform has
none, and load to the device "cpu".
"""

from __future__ import annotations

import sys
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import tiny
import torch


class Absent:
    """A name of a library of kernels, which may be looked up. A call is an error, unless it decorates."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(name)
        return Absent(f"{self._name}.{name}")

    def __call__(self, *given: Any, **_: Any) -> Absent:
        assert len(given) == 1 and callable(given[0]), f"{self._name} is called, and is not here"
        return self


class Kernels(MetaPathFinder, Loader):
    """Finds the libraries of kernels, with all their modules."""

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        is_theirs = name.partition(".")[0] in ("cutlass", "sgl_kernel")
        return ModuleSpec(name, self, is_package=True) if is_theirs else None

    def exec_module(self, module: ModuleType) -> None:
        module.__getattr__ = Absent(module.__name__).__getattr__  # type: ignore[method-assign]


def start(path: str, rank: int = 0, ranks: int = 1, port: int = 0) -> None:
    """What a scheduler of SGLang does before it loads, with gloo. Each rank has a GPU of its own."""
    if tiny.GPU:
        torch.cuda.set_device(rank)
        sys.meta_path.insert(0, Kernels())
    from sglang.srt.distributed import parallel_state
    from sglang.srt.distributed.device_communicators import pynccl
    from sglang.srt.layers.dp_attention import initialize_dp_attention
    from sglang.srt.layers.moe import initialize_moe_config
    from sglang.srt.runtime_context import SpawnRanks, publish
    from sglang.srt.server_args import ServerArgs

    args = ServerArgs(
        model_path=path, device=tiny.DEVICE, load_format="private", dtype="bfloat16", skip_tokenizer_init=True,
        tp_size=ranks,
    )  # fmt: skip
    publish(args, role="scheduler", ranks=SpawnRanks(world_rank=rank, gpu_id=rank))
    initialize_moe_config()
    where = f"tcp://127.0.0.1:{port or tiny.free_port()}"
    parallel_state.init_distributed_environment(ranks, rank, where, local_rank=rank, backend="gloo")
    # The groups are gloo's alone: communicators of NCCL beside them would need a GPU each.
    parallel_state.set_custom_all_reduce(False)
    pynccl.PyNcclCommunicator = lambda **words: None
    parallel_state.initialize_model_parallel()
    initialize_dp_attention(args)
    # SGLang keeps exceptions of models that it can't import, and with them the frames of the first load.
    engine(path, "auto")


def loaded(path: str, load_format: str = "private", draft: bool = False, **more: Any) -> tuple[Any, torch.nn.Module]:
    """The loader that SGLang makes for these options, and its model."""
    from sglang.srt.configs.device_config import DeviceConfig
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.configs.model_config import ModelConfig
    from sglang.srt.model_loader.loader import get_model_loader

    config = ModelConfig(model_path=path, dtype="bfloat16", is_draft_model=draft)
    loader = get_model_loader(LoadConfig(load_format=load_format, **more), config)
    device = DeviceConfig(tiny.DEVICE, torch.cuda.current_device() if tiny.GPU else 0)
    return loader, loader.load_model(model_config=config, device_config=device)


def engine(path: str, load_format: str = "private", **more: Any) -> torch.nn.Module:
    """A model, as a second process with the same flags has it."""
    return loaded(path, load_format, **more)[1]
