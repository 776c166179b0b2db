# SPDX-License-Identifier: MIT
"""Tiny models on disk, and what vLLM makes of them with its own registries, loaders and post-processing: on the GPU,
if PyTorch has one, else on the CPU.

Nothing of vLLM is compiled here: its Python files are enough for all that is done with weights.
"""

from __future__ import annotations

import multiprocessing as mp
import os
import socket
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

GPU = torch.cuda.is_available()
DEVICE = "cuda" if GPU else "cpu"
HIDDEN, LAYERS, VOCABULARY, BLOCK = 64, 2, 128, 32
_COMMON = {
    "hidden_size": HIDDEN, "intermediate_size": 96, "num_hidden_layers": LAYERS, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": VOCABULARY, "max_position_embeddings": 128,
}  # fmt: skip
KINDS = ("llama", "tied", "moe", "fp8")
_kept: list[Any] = []


def make(folder: Path, kind: str, seed: int = 1) -> str:
    """A model of that kind in that folder, as a user downloads it."""
    import transformers as tf

    torch.manual_seed(seed)
    path = folder / f"{kind}-{seed}"
    if kind == "moe":
        config = tf.Qwen2MoeConfig(
            **_COMMON, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32,
            shared_expert_intermediate_size=32, architectures=["Qwen2MoeForCausalLM"],
        )  # fmt: skip
        model: Any = tf.Qwen2MoeForCausalLM(config)
    elif kind == "fp8-blocks":
        # SGLang's Llama looks for scales of blocks under another name.
        model = tf.Qwen2ForCausalLM(tf.Qwen2Config(**_COMMON, architectures=["Qwen2ForCausalLM"]))
    else:
        config = tf.LlamaConfig(**_COMMON, tie_word_embeddings=kind == "tied", architectures=["LlamaForCausalLM"])
        model = tf.LlamaForCausalLM(config)
    if kind in ("fp8", "fp8-blocks"):
        _save_fp8(model, path, BLOCK if kind == "fp8-blocks" else 0)
    else:
        model.to(torch.bfloat16).save_pretrained(path)
    return str(path)


def _save_fp8(model: Any, path: Path, block: int) -> None:
    """A checkpoint with one scale for each weight of a linear layer, or for each block of it."""
    from safetensors.torch import save_file

    model.to(torch.bfloat16)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("proj.weight"):
            tensors.update(_quantised(name, tensor.float(), block))
        else:
            tensors[name] = tensor
    path.mkdir()
    save_file(tensors, str(path / "model.safetensors"), metadata={"format": "pt"})
    blocks = {"weight_block_size": [block, block]} if block else {}
    model.config.quantization_config = {"quant_method": "fp8", "activation_scheme": "dynamic", **blocks}
    model.config.save_pretrained(path)


def _quantised(name: str, weight: torch.Tensor, block: int) -> dict[str, torch.Tensor]:
    rows, columns = weight.shape
    if not block:
        scale = weight.abs().max() / 448
        return {name: (weight / scale).to(torch.float8_e4m3fn), name.replace(".weight", ".weight_scale"): scale}
    blocks = weight.view(rows // block, block, columns // block, block)
    scales = blocks.abs().amax((1, 3), keepdim=True) / 448
    quantised = (blocks / scales).view(rows, columns).to(torch.float8_e4m3fn)
    return {name: quantised, f"{name}_scale_inv": scales.view(rows // block, columns // block)}


def start(rank: int = 0, ranks: int = 1, port: int = 0) -> None:
    """What a worker of vLLM does before it loads, with gloo. Each rank has a GPU of its own."""
    import vllm.platforms

    if GPU:
        torch.cuda.set_device(rank)
        # No weight is loaded by its collectives, some of which wait for GPUs that reach each other.
        os.environ |= {"VLLM_DISABLE_PYNCCL": "1", "VLLM_ALLREDUCE_USE_SYMM_MEM": "0"}
        # Of its kernels, which are not here, only these modules must be.
        for name in ("_C_stable_libtorch", "vllm_flash_attn._vllm_fa2_C", "vllm_flash_attn._vllm_fa3_C"):
            sys.modules[f"vllm.{name}"] = ModuleType(f"vllm.{name}")
        sys.modules["vllm.third_party.deep_gemm"] = None  # type: ignore[assignment]
        from vllm.platforms.cuda import CudaPlatform as Here
    else:
        from vllm.platforms.cpu import CpuPlatform as Here
    vllm.platforms._current_platform = Here()
    _kernels()
    if GPU:
        # Another process, in which vLLM looks at a model's class, would need the kernels.
        from vllm.model_executor.models import registry

        registry._run_in_subprocess = lambda look: look()
    from vllm.config import VllmConfig, set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel, parallel_state

    parallel_state.set_custom_all_reduce(False)
    with set_current_vllm_config(VllmConfig()):
        where = f"tcp://127.0.0.1:{port or free_port()}"
        init_distributed_environment(ranks, rank, where, rank, backend="gloo")
        initialize_model_parallel(ranks, 1, backend="gloo")


def _kernels() -> None:
    """In the place of two of vLLM's kernels, which are compiled: the post-processing calls them. The second packs in
    another order than vLLM's; what matters is that it is not done twice.
    """
    # On a CPU that has AMX, vLLM would pack weights by a third one.
    torch.cpu._is_amx_tile_supported = lambda: False
    library = torch.library.Library("_C", "FRAGMENT")
    _kept.append(library)
    library.define("static_scaled_fp8_quant(Tensor(a!) output, Tensor input, Tensor scale, int[]? group=None) -> ()")
    library.define("prepack_moe_weight(Tensor weight, Tensor(a!) output, str isa) -> ()")

    def quantise(output: torch.Tensor, input: torch.Tensor, scale: torch.Tensor, group: object = None) -> None:
        output.copy_((input.float() / scale).clamp(-448, 448).to(output.dtype))

    def pack(weight: torch.Tensor, output: torch.Tensor, isa: str) -> None:
        output.copy_(weight.roll(1, -1))

    for where in ("CPU", "CUDA"):
        library.impl("static_scaled_fp8_quant", quantise, where)
    library.impl("prepack_moe_weight", pack, "CPU")
    if GPU:
        library.define("silu_and_mul(Tensor(a!) result, Tensor input) -> ()")  # looked up, and not called
        for kernel in ("scaled_mm_supports_fp8", "scaled_mm_supports_block_fp8", "group_gemm_supported"):
            library.define(f"cutlass_{kernel}(int capability) -> bool")
            library.impl(f"cutlass_{kernel}", lambda capability: False, "CompositeImplicitAutograd")


def free_port() -> int:
    """One that nobody has."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def processes() -> Any:
    """How new processes begin: CUDA does not survive a fork."""
    return mp.get_context("spawn" if GPU else "fork")


def both_ranks(rank: Callable[[str, int, int, Connection], None], path: str) -> list[Any]:
    """What each of two tensor-parallel processes, in which `rank` runs, has sent. They end when both have."""
    ctx, port, found = mp.get_context("spawn"), free_port(), []
    for number in range(2):
        ours, theirs = ctx.Pipe()
        process = ctx.Process(target=rank, args=(path, number, port, theirs))
        process.start()
        theirs.close()
        found.append((process, ours))
    answers = []
    for _, pipe in found:
        assert pipe.poll(120), "a rank says nothing"
        answers.append(pipe.recv())
    for process, pipe in found:
        pipe.send(True)
        process.join(60)
    return answers


def config(path: str, load_format: str = "gpushm", ranks: int = 1, **more: Any) -> Any:
    """A VllmConfig, as `vllm serve --load-format` makes it. One takes one model."""
    from vllm.config import CacheConfig, DeviceConfig, LoadConfig, ModelConfig, ParallelConfig, VllmConfig

    model = ModelConfig(model=path, tokenizer=path, skip_tokenizer_init=True, dtype="bfloat16", enforce_eager=True)
    return VllmConfig(
        model_config=model,
        cache_config=CacheConfig(block_size=16),
        device_config=DeviceConfig(device=DEVICE),
        parallel_config=ParallelConfig(tensor_parallel_size=ranks),
        load_config=LoadConfig(load_format=load_format, **more),
    )


def load(vllm_config: Any) -> torch.nn.Module:
    """By the loader that the configuration names."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    with set_current_vllm_config(vllm_config):
        loader = get_model_loader(vllm_config.load_config)
        made: torch.nn.Module = loader.load_model(vllm_config=vllm_config, model_config=vllm_config.model_config)
        return made


def engine(path: str, load_format: str = "gpushm", **more: Any) -> torch.nn.Module:
    """A model, as a second process with the same flags has it."""
    return load(config(path, load_format, **more))


def addresses(model: torch.nn.Module) -> dict[str, int]:
    """Where the parameters are."""
    return {name: p.data_ptr() for name, p in model.named_parameters(remove_duplicate=False)}


os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
