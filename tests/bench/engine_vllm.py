#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""gpushm.vllm in vLLM's own loader classes, beside DefaultModelLoader and vLLM's cumem backend: times of the weights
phase, sleep and wake, and the memory that is left for the KV cache.

    BUILD=build PYTHONPATH=build/python:VLLM tests/bench/engine_vllm.py [--gib 16] [--folder /dev/shm]
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parents[1] / "python"
sys.path[:0] = [str(TESTS), str(TESTS / "engines")]

import tiny
import torch

ROLES = ("disk", "cumem", "first", "second")
LAYER = 218_112_000 * 2  # bytes


def timed(call: Callable[[], Any]) -> tuple[float, Any]:
    """Milliseconds, with what the GPU has to do."""
    wait = torch.cuda.synchronize if tiny.GPU and tiny.DEVICE == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    found = call()
    wait()
    return round((time.perf_counter() - start) * 1e3, 1), found


def make(folder: Path, gib: float) -> None:
    """A Llama with layers as an 8B model's, a file for each."""
    import transformers
    from safetensors.torch import save_file

    layers, hidden, inner, vocabulary = max(1, round((gib * 2**30) / LAYER)), 4096, 14336, 1024
    transformers.LlamaConfig(
        hidden_size=hidden, intermediate_size=inner, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=vocabulary, tie_word_embeddings=True, torch_dtype="bfloat16",
        architectures=["LlamaForCausalLM"],
    ).save_pretrained(folder)  # fmt: skip
    shapes = {
        "self_attn.q_proj": (hidden, hidden), "self_attn.o_proj": (hidden, hidden),
        "self_attn.k_proj": (1024, hidden), "self_attn.v_proj": (1024, hidden), "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner), "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
    }  # fmt: skip

    def random(shape: tuple[int, ...]) -> torch.Tensor:
        return torch.randn(shape, dtype=torch.bfloat16, device=tiny.DEVICE)

    for i in range(layers):
        found = {f"model.layers.{i}.{name}.weight": random(shape) for name, shape in shapes.items()}
        save_file(found, str(folder / f"model-{i}.safetensors"))
    ends = {"model.embed_tokens.weight": random((vocabulary, hidden)), "model.norm.weight": random((hidden,))}
    save_file(ends, str(folder / "model-ends.safetensors"))


def digest(model: torch.nn.Module) -> str:
    """Of all weights."""
    sums = [int(p.detach().view(torch.int16).sum(dtype=torch.int64)) for _, p in sorted(model.named_parameters())]
    return hashlib.sha256(str(sums).encode()).hexdigest()[:16]


def available() -> int:
    """Bytes of the host's memory."""
    lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    return int(lines["MemAvailable"].split()[0]) << 10


def asleep(backend: Any) -> dict[str, Any]:
    """Times of two sleeps, and what the first takes of the host. vLLM's allocator collects garbage in each."""
    from vllm.device_allocator import get_mem_allocator_instance
    from vllm.utils.gc_utils import freeze_gc_heap

    get_mem_allocator_instance()  # a worker has it from its KV cache
    freeze_gc_heap()  # as vLLM's worker does when it is warm
    emptied, _ = timed(torch.cuda.empty_cache)  # a sleep would do it, of what the load has left
    before = available()
    first, _ = timed(backend.suspend)
    host = before - available()
    wake, _ = timed(backend.resume)
    again, _ = timed(backend.suspend)
    return {"empty_cache": emptied, "sleep": first, "wake": wake, "sleep again": again,
            "wake again": timed(backend.resume)[0], "host MiB": max(0, host) >> 20}  # fmt: skip


def initialize(config: Any) -> None:
    """The part of a load that is no weights, in memory of the GPU: the model's objects."""
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader.utils import initialize_model

    with set_current_vllm_config(config), torch.device(tiny.DEVICE):
        initialize_model(vllm_config=config, model_config=config.model_config)


def role(name: str, path: str) -> None:
    """One engine; prints what it has measured."""
    import gpushm.vllm

    tiny.start()
    gpushm.vllm.register()
    from vllm.config import set_current_vllm_config
    from vllm.device_allocator import get_mem_allocator_instance
    from vllm.device_allocator.sleep_mode_backend import CuMemBackend
    from vllm.model_executor.model_loader import get_model_loader
    from vllm.utils.mem_utils import MemorySnapshot, memory_profiling
    from vllm.v1.worker.utils import request_memory

    gpu = tiny.DEVICE == "cuda"
    x = torch.ones(16, 16, dtype=torch.bfloat16, device=tiny.DEVICE)
    torch.mm(x, x)
    config = tiny.config(path, "gpushm" if name in ("first", "second") else "auto")
    said: dict[str, Any] = {"role": name}
    said["initialize, first"], _ = timed(lambda: initialize(tiny.config(path, "auto")))
    said["initialize"], _ = timed(lambda: initialize(tiny.config(path, "auto")))
    gc.collect()
    if gpu:
        torch.cuda.empty_cache()
        with set_current_vllm_config(config):
            external = get_model_loader(config.load_config).get_external_weight_memory(config)
        snapshot = MemorySnapshot(device=torch.device("cuda:0"))
        requested = request_memory(snapshot, config.cache_config, external)
    if name == "cumem":
        with get_mem_allocator_instance().use_memory_pool("weights"):
            said["load"], model = timed(lambda: tiny.load(config))
    else:
        said["load"], model = timed(lambda: tiny.load(config))
    if gpu:
        with memory_profiling(snapshot) as result:
            pass
        said |= {"external MiB": external >> 20, "KV MiB": (requested - result.non_kv_cache_memory) >> 20}
    if name == "cumem":
        said |= asleep(CuMemBackend())
    elif name == "second" and gpu:
        from gpushm.vllm._sleep import Backend

        said |= asleep(Backend())
    said["digest"] = digest(model)
    if name in ("disk", "second"):
        del model
        gc.collect()
        again = tiny.config(path, "auto" if name == "disk" else "gpushm")
        said["load again"], _ = timed(lambda: tiny.load(again))
    print(json.dumps(said), flush=True)


def main() -> None:
    """Prints a line for each engine."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--folder")
    parser.add_argument("--roles", default=",".join(ROLES), help="which of them, the second one after the first")
    parser.add_argument("--role", choices=ROLES)
    parser.add_argument("--path")
    given = parser.parse_args()
    if given.role:
        role(given.role, given.path)
        return
    import os

    from daemon import Daemon

    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        try:
            made, _ = timed(lambda: make(Path(folder), given.gib))
            print(f"checkpoint made in {made / 1e3:.0f} s", flush=True)
            for name in given.roles.split(","):
                if name == "cumem" and not tiny.GPU:
                    continue
                subprocess.run([sys.executable, __file__, "--role", name, "--path", folder], timeout=120)
        finally:
            daemon.remove()


if __name__ == "__main__":
    main()
