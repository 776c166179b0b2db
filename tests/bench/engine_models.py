#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What gpushm.vllm does to the weights of an engine, without vLLM: times of a first engine, a second one, sleep, wake,
and a generation that 8 consumers follow, beside safetensors' load_file(), load_state_dict() and torch's handles of CUDA IPC.

    BUILD=build PYTHONPATH=build/python tests/bench/engine_models.py [--gib 16] [--folder /tmp] [--consumers 8]

Needs PyTorch and safetensors. Takes the GPU if there is one, else host memory.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import torch

SIDE = 8192  # of a layer's weight: 128 MiB as bfloat16
NAME = "bench/model"


def build(layers: int) -> torch.nn.Module:
    """As an engine's model: some weights, and a buffer."""
    made = torch.nn.ModuleList(torch.nn.Linear(SIDE, SIDE, bias=False, dtype=torch.bfloat16) for _ in range(layers))
    made.register_buffer("table", torch.ones(128, 64))
    return made.eval()


def timed(call: Callable[[], Any], device: torch.device) -> tuple[float, Any]:
    """Milliseconds, with what the GPU has to do."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    wait()
    start = time.perf_counter()
    found = call()
    wait()
    return (time.perf_counter() - start) * 1e3, found


def total(model: torch.nn.Module) -> int:
    """Of all bytes of the weights, a sum that tells two generations apart."""
    return sum(int(p.detach().view(torch.int16).sum(dtype=torch.int64)) for p in model.parameters())


def loaded(folder: Path, layers: int, device: torch.device) -> torch.nn.Module:
    """From its files, one for each layer."""
    from safetensors.torch import load_file

    with torch.device("meta"):
        made = build(layers)
    for i in range(layers):
        made[i].weight = torch.nn.Parameter(load_file(folder / f"{i}", str(device))["w"], requires_grad=False)
    made.table = torch.ones(128, 64, device=device)
    return made


def consumer(layers: int, device: torch.device) -> None:
    """A process that attaches, sleeps and follows, when it is told; prints a line for each."""
    from gpushm import _engine
    from gpushm import torch as shared

    if device.type == "cuda":
        torch.zeros(1, device=device)
    with torch.device("meta"):
        built, model = timed(lambda: build(layers), device)
    attached, _ = timed(lambda: _engine.attach_model(model, _engine.open_model(NAME, device)), device)
    said = {"build": built, "attach": attached, "total": total(model)}
    said["sleep"] = timed(lambda: shared.suspend(model, idle=True), device)[0]
    said["wake"] = timed(lambda: shared.resume(model), device)[0]
    print(json.dumps(said), flush=True)
    while sys.stdin.readline():
        followed, _ = timed(lambda: _engine.follow(model, NAME), device)
        print(json.dumps({"follow": followed, "total": total(model)}), flush=True)


def copier(layers: int, device: torch.device) -> None:
    """A process that copies a generation as vLLM's IPC transfer does: it opens each tensor's handle, and copies it."""
    with device:
        model = build(layers)
    torch.cuda.synchronize()
    print("ready", flush=True)
    handles = pickle.load(sys.stdin.buffer)
    took, _ = timed(lambda: model.load_state_dict({name: call(*a) for name, (call, a) in handles.items()}), device)
    print(json.dumps({"took": took, "total": total(model)}), flush=True)


def by_handles(model: torch.nn.Module, words: list[str]) -> float:
    """Milliseconds that one copier takes for the model."""
    from torch.multiprocessing.reductions import reduce_tensor

    handles = pickle.dumps({name: reduce_tensor(t.detach()) for name, t in model.state_dict().items()})
    with subprocess.Popen([*words, "--copier"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin and process.stdout
        process.stdout.readline()
        process.stdin.write(handles)
        process.stdin.flush()
        found = json.loads(process.stdout.readline())
    assert found["total"] == total(model), "the bits differ"
    return float(found["took"])


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--gib", type=float, default=16)
    parser.add_argument("--folder")
    parser.add_argument("--consumers", type=int, default=8)
    parser.add_argument("--consumer", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--copier", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    layers = max(1, int(given.gib * 8))
    device = torch.device("cuda", 0) if torch.cuda.is_available() else torch.device("cpu")
    if given.consumer or given.copier:
        (consumer if given.consumer else copier)(layers, device)
        return
    from daemon import Daemon

    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        try:
            measure(Path(folder), layers, device, given)
        finally:
            daemon.remove()


def next_generation(
    model: torch.nn.Module, others: list[subprocess.Popen[str]], at_once: bool, device: torch.device
) -> list[float]:
    """Publishes one, which the others follow. Milliseconds of the trainer, and of each of the others, sorted."""
    from gpushm import _engine

    for parameter in model.parameters():
        parameter.data = parameter.data + 1
    published, _ = timed(lambda: _engine.publish_model(NAME, model, {}, replace=True).close(), device)
    followed = []
    for group in [others] if at_once else [[one] for one in others]:
        for one in group:
            assert one.stdin
            one.stdin.write("\n")
            one.stdin.flush()
        followed += [json.loads(one.stdout.readline()) for one in group if one.stdout]
    assert all(row["total"] == total(model) for row in followed), "the bits differ"
    return [published, *sorted(row["follow"] for row in followed)]


def measure(folder: Path, layers: int, device: torch.device, given: argparse.Namespace) -> None:
    """The first engine, the trainer, and the table."""
    from gpushm import _engine
    from safetensors.torch import save_file

    for i in range(layers):
        save_file({"w": torch.full((SIDE, SIDE), i / 7, dtype=torch.bfloat16)}, folder / f"{i}")
    loaded(folder, layers, device)  # the page cache has the files from now on
    plain, _ = timed(lambda: loaded(folder, layers, device), device)
    if device.type == "cuda":
        torch.cuda.empty_cache()
    size = layers * SIDE * SIDE * 2 + (64 << 20)
    first, model = timed(
        lambda: _engine.load_and_publish(NAME, device, size, lambda: loaded(folder, layers, device), lambda _: {}),
        device,
    )
    expected = total(model)
    words = [sys.executable, __file__, "--gib", str(given.gib)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    others = [subprocess.Popen([*words, "--consumer"], **pipes) for _ in range(given.consumers)]
    rows = [json.loads(one.stdout.readline()) for one in others]
    assert all(row["total"] == expected for row in rows), "the bits differ"
    generations = [next_generation(model, others, at_once, device) for at_once in (True, True, True, False)]
    print(f"{layers / 8:.1f} GiB, {given.consumers} consumers, {device}, torch {torch.__version__}")
    print(f"load_file() from the page cache      {plain:9.1f} ms")
    print(f"the first engine: load, publish      {first:9.1f} ms")
    for key in ("build", "attach", "sleep", "wake"):
        values = sorted(row[key] for row in rows)
        print(f"{key:36} {values[len(values) // 2]:9.1f} ms, at most {values[-1]:.1f}")
    for how, (published, *took) in zip(("all at once", "again", "again", "one by one"), generations, strict=True):
        print(f"a trainer publishes a generation     {published:9.1f} ms")
        middle = took[len(took) // 2]
        print(f"consumers follow it, {how:15} {middle:9.1f} ms, at most {took[-1]:.1f}")
    with device:
        own = build(layers)
    print(f"load_state_dict() of a generation    {timed(lambda: own.load_state_dict(model.state_dict()), device)[0]:9.1f} ms")
    for one in others:
        one.communicate(timeout=60)
    if device.type == "cuda":  # memory of torch's own: what gpushm has mapped has no such handles
        print(f"one consumer by CUDA IPC, and copies {by_handles(own, words):9.1f} ms")


if __name__ == "__main__":
    main()
