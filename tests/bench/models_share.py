#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers of a torch service that answer with one model: plain, with --preload, and with gpushm.torch.share().

    models_share.py [--mib 1024] [--device cpu] [MODE[:WORKERS]...]     modes: plain, preload and share; 8 workers each

The server is gunicorn or, where there is none, forks as gunicorn does. A worker is ready when it has the model. Then
it reads all of it. On the CPU the file has float32 and the model takes it as bfloat16, so that the page cache does
not share it; with --device cuda the file has bfloat16. The memory is the GPU's, or the Pss of all processes without
what they have mapped of files, less that of the same workers without a model. "share" starts a daemon of its own, and
ends it. Prints the lines of a table: mode, workers, when the first one is ready, when the last one is after that, and
memory by the size of the model. On stderr is when each worker had imported PyTorch, called build(), had its result,
and was ready: seconds since the start and, in brackets, of the processor.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDTH = 4096  # of a layer: 32 MiB
Times = list[tuple[float, float]]


def app(mode: str, folder: str, mib: int, device: str) -> Any:
    """What the server calls in each worker, or before the forks."""
    import torch

    times = [now()]

    def build() -> torch.nn.Module:
        times.append(now())
        with torch.device("meta"):
            layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(mib // 32)]
        model = torch.nn.Sequential(*layers)
        if mib:
            from safetensors.torch import load_file

            model.load_state_dict(load_file(f"{folder}/model.safetensors"), assign=True)
        model = model.to(device, torch.bfloat16).eval()
        times.append(now())
        return model

    if device != "cpu":
        torch.zeros(1, device=device)
    if mode == "share" and mib:
        import gpushm.torch

        model = gpushm.torch.share("bench", build)
    else:
        model = build()
    app.found = model, times
    if mode != "preload":
        report(folder)
    return lambda environ, start: []


def now() -> tuple[float, float]:
    """By the clock, and of the processor by this process."""
    return time.monotonic(), time.process_time()


def report(folder: str) -> None:
    """The worker is ready. Then it reads a byte of each page."""
    model, times = app.found
    times.append(now())
    for parameter in model.parameters():
        parameter.detach().view(-1)[:: 4096 // parameter.itemsize].sum().item()
    with open(f"{folder}/ready", "a") as file:
        file.write(json.dumps(times) + "\n")


CONFIG = """
import models_share
def post_worker_init(worker):
    if {preload}:
        models_share.report({folder!r})
"""


def serve(mode: str, workers: int, folder: str, *model: Any) -> None:
    """What gunicorn does, to the point where the workers are ready."""
    if mode == "preload":
        app(mode, folder, *model)
    for _ in range(workers):
        if os.fork() == 0:
            if mode == "preload":
                report(folder)
            else:
                app(mode, folder, *model)
            signal.pause()
    signal.pause()


def started(mode: str, workers: int, folder: Path, *model: Any) -> subprocess.Popen[bytes]:
    if find_spec("gunicorn") is None:
        call = f"import models_share as m; m.serve{(mode, workers, str(folder), *model)}"
        return subprocess.Popen([sys.executable, "-c", call], start_new_session=True)
    (folder / "config.py").write_text(CONFIG.format(preload=mode == "preload", folder=str(folder)))
    words = [sys.executable, "-m", "gunicorn", "--timeout", "600", "--workers", str(workers), "--log-level", "error"]
    words += ["--bind", f"unix:{folder}/s", "--config", f"{folder}/config.py", *["--preload"] * (mode == "preload")]
    words += [f"models_share:app{(mode, str(folder), *model)}"]
    return subprocess.Popen(words, start_new_session=True)


def measured(mode: str, workers: int, mib: int, device: str, folder: Path) -> tuple[list[Times], int]:
    """When each worker did what, and the memory of all in KiB."""
    (folder / "ready").write_text("")
    start = time.monotonic()
    master = started(mode, workers, folder, mib, device)
    try:
        while len(lines := (folder / "ready").read_text().splitlines()) < workers:
            assert master.poll() is None
            time.sleep(0.05)
        time.sleep(2)
        memory = of_gpu() if device != "cpu" else pss_of_all(master.pid)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(master.pid, signal.SIGKILL)
        master.wait()
    found = [[(at - start, cpu) for at, cpu in json.loads(line)] for line in lines]
    return sorted(found, key=lambda times: times[-1]), memory


def of_gpu() -> int:
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "--id=0"]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout) << 10


def pss_of_all(master: int) -> int:
    """What the processes have beside files: of what several have mapped, each its part."""
    children = Path(f"/proc/{master}/task/{master}/children").read_text().split()
    texts = [Path(f"/proc/{pid}/smaps_rollup").read_text() for pid in [str(master), *children]]
    return sum(int(kib) for text in texts for kib in re.findall(r"^Pss_(?:Anon|Shmem): *(\d+)", text, re.MULTILINE))


def save(path: Path, mib: int, device: str) -> None:
    """Random layers, which are all the same."""
    dtype, size = ("F32", 4) if device == "cpu" else ("BF16", 2)
    nbytes = WIDTH * WIDTH * size
    layer = os.urandom(1 << 20) * (nbytes >> 20)
    head = {
        f"{i}.weight": {"dtype": dtype, "shape": [WIDTH, WIDTH], "data_offsets": [i * nbytes, (i + 1) * nbytes]}
        for i in range(mib // 32)
    }
    text = json.dumps(head).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for _ in head:
            file.write(layer)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("modes", nargs="*", default=["plain", "preload", "share"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GPUSHM_SOCKET"] = f"{folder}/gpushmd"
        os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE.resolve()), os.environ.get("PYTHONPATH", "")])
        os.environ["PATH"] = os.pathsep.join([os.environ.get("BUILD", "build"), os.environ.get("PATH", os.defpath)])
        save(folder / "model.safetensors", options.mib, options.device)
        for word in options.modes:
            mode, _, count = word.partition(":")
            workers = int(count or 8)
            _, without = measured(mode, workers, 0, options.device, folder)
            found, memory = measured(mode, workers, options.mib, options.device, folder)
            for worker in found:
                print(f"{mode}: {' '.join(f'{at:.2f} ({cpu:.2f})' for at, cpu in worker)}", file=sys.stderr)
            first, last = found[0][-1][0], found[-1][-1][0]
            copies = (memory - without) / 1024 / options.mib
            print(f"| {mode} | {workers} | {first:.1f} s | {last - first:.2f} s | {copies:.2f} |", flush=True)
        if any(word.startswith("share") for word in options.modes):
            import gpushm

            daemon = Path(f"/proc/{gpushm.status().pid}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGTERM)


if __name__ == "__main__":
    main()
