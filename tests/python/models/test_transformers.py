# SPDX-License-Identifier: MIT
"""A model of transformers, from a configuration with random weights: published by one process, attached by another."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from typing import Any

import gpushm
import gpushm.torch as shared
import pytest
import torch

transformers = pytest.importorskip("transformers")

Raises = Callable[..., str]


def config(**changes: Any) -> Any:
    """Llama's shape, small: four layers, grouped heads, tied embeddings."""
    values: dict[str, Any] = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4}
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    values |= {"tie_word_embeddings": True, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    return transformers.LlamaConfig(**(values | changes))


def build(**changes: Any) -> Any:
    """As a worker makes it: under torch.device("meta"), by attach()."""
    return transformers.AutoModelForCausalLM.from_config(config(**changes), dtype=torch.bfloat16).eval()


def generated(model: Any, device: str) -> list[int]:
    """The tokens that the model adds to a prompt, the most likely one each time."""
    prompt = torch.arange(3, 11, device=device)[None]
    with torch.inference_mode():
        out = model.generate(prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=8, do_sample=False)
    return [int(t) for t in out[0]]


def follow(device: str) -> list[int]:
    """In another process."""
    return generated(shared.attach("model", build, timeout=60), device)


@pytest.fixture
def model(device: str) -> Any:
    """With weights."""
    torch.manual_seed(5)
    return build().to(device)


def test_generation_is_the_same_in_another_process(model: Any, name: str, device: str) -> None:
    with shared.publish(name, model) as tensors:
        buffers = [n for n, _ in model.named_buffers()]
        assert any("inv_freq" in n for n in buffers) and set(buffers) <= set(tensors)
        assert tensors.buffer.nbytes < 1.02 * sum(p.nbytes for p in model.parameters()) + 65536
    got = shared.attach(name, build)
    assert got.get_input_embeddings().weight is got.get_output_embeddings().weight
    expected = generated(model, device)
    assert generated(got, device) == expected
    with mp.get_context("spawn").Pool(1) as worker:
        assert worker.apply(follow, (device,)) == expected


def test_another_configuration_is_refused(model: Any, name: str, raises: Raises) -> None:
    shared.publish(name, model)
    for changes, said in (
        ({"num_hidden_layers": 3}, "config.num_hidden_layers is 3 here and 4 in the buffer"),
        ({"rms_norm_eps": 1e-3}, "config.rms_norm_eps is 0.001 here and 1e-06 in the buffer"),
    ):
        assert said in raises(gpushm.errors.LayoutError, shared.attach, name, lambda c=changes: build(**c))


def test_weights_of_a_file_attach(model: Any, name: str, device: str, tmp_path: Any) -> None:
    """save_pretrained() leaves out tied names and buffers that are not persistent."""
    from safetensors.torch import load_file

    model.save_pretrained(tmp_path)
    shared.publish(name, {n: t.to(device) for n, t in load_file(tmp_path / "model.safetensors").items()})
    got = shared.attach(name, build())
    assert got.get_output_embeddings().weight is got.get_input_embeddings().weight
    assert generated(got, device) == generated(model, device)


def test_a_model_built_in_memory_generates_the_same(name: str, gpu: str) -> None:
    torch.manual_seed(5)
    with shared.memory(name, "256 MiB") as mem, torch.device(gpu):
        model = build()
        mem.publish(model)
    expected = generated(model, gpu)
    assert generated(shared.attach(name, build), gpu) == expected
    assert generated(model, gpu) == expected
