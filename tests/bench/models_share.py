#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Workers of gunicorn that answer with one model on the CPU: plain, with --preload, and with gpushm.torch.share().

    models_share.py [--mib 1024] [--workers 8] [MODE...]     of plain, preload and share

The file has float32, and the model takes it as bfloat16, so that the page cache does not share it. A worker is ready
when it has the model. Then it reads all of it. The memory is the Pss of all processes, less that of the same workers
without a model. "share" starts a daemon of its own, and ends it. Prints the lines of a table: mode, workers, model,
when the first one is ready, when the last one is after that, and memory by the size of the model.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
WIDTH = 4096  # of a layer: 32 MiB


def app(mode: str, folder: str, mib: int) -> Any:
    """What gunicorn calls in each worker, or before the forks."""
    import torch

    def build() -> torch.nn.Module:
        with torch.device("meta"):
            layers = [torch.nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(mib // 32)]
        model = torch.nn.Sequential(*layers)
        if mib:
            from safetensors.torch import load_file

            model.load_state_dict(load_file(f"{folder}/model.safetensors"), assign=True)
        return model.to(torch.bfloat16).eval()

    if mode == "share":
        import gpushm.torch

        model = gpushm.torch.share("bench", build) if mib else build()
    else:
        model = build()
    app.model = model
    if mode != "preload":
        report(folder)
    return lambda environ, start: []


def report(folder: str) -> None:
    """The worker is ready. Then it reads a byte of each page."""
    ready = time.monotonic()
    for parameter in app.model.parameters():
        parameter.detach().view(-1)[:: 4096 // parameter.itemsize].sum().item()
    with open(f"{folder}/ready", "a") as file:
        file.write(f"{ready}\n")


CONFIG = """
import models_share
def post_worker_init(worker):
    if {preload}:
        models_share.report({folder!r})
"""


def measured(mode: str, workers: int, mib: int, folder: Path) -> tuple[float, float, int]:
    """Seconds until the first worker is ready, and until the last one is; and the Pss of all."""
    (folder / "ready").write_text("")
    (folder / "config.py").write_text(CONFIG.format(preload=mode == "preload", folder=str(folder)))
    words = [sys.executable, "-m", "gunicorn", "--timeout", "600", "--workers", str(workers), "--log-level", "error"]
    words += ["--bind", f"unix:{folder}/s", "--config", f"{folder}/config.py", *["--preload"] * (mode == "preload")]
    start = time.monotonic()
    master = subprocess.Popen([*words, f"models_share:app({mode!r}, {str(folder)!r}, {mib})"], cwd=HERE)
    try:
        while len(times := (folder / "ready").read_text().split()) < workers:
            assert master.poll() is None
            time.sleep(0.05)
        time.sleep(2)
        children = Path(f"/proc/{master.pid}/task/{master.pid}/children").read_text().split()
        pss = sum(pss_of(pid) for pid in [str(master.pid), *children])
    finally:
        master.terminate()
        master.wait()
    found = sorted(map(float, times))
    return found[0] - start, found[-1] - start, pss


def pss_of(pid: str) -> int:
    """What the process has, in KiB: its part of what several have mapped."""
    return int(next(line.split()[1] for line in Path(f"/proc/{pid}/smaps_rollup").open() if line.startswith("Pss:")))


def save(folder: Path, mib: int) -> None:
    import torch
    from safetensors.torch import save_file

    save_file({f"{i}.weight": torch.rand(WIDTH, WIDTH) for i in range(mib // 32)}, folder / "model.safetensors")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("modes", nargs="*", default=["plain", "preload", "share"])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        os.environ["GPUSHM_SOCKET"] = f"{folder}/gpushmd"
        saver = f"import models_share as m; m.save(m.Path({name!r}), {options.mib})"
        subprocess.run([sys.executable, "-c", saver], check=True, cwd=HERE)
        for mode in options.modes:
            none = measured(mode, options.workers, 0, folder)[2]
            first, last, pss = measured(mode, options.workers, options.mib, folder)
            seconds = f"{first:.1f} s | {last - first:.2f} s"
            copies = (pss - none) / 1024 / options.mib
            print(f"| {mode} | {options.workers} | {options.mib} MiB | {seconds} | {copies:.2f} |", flush=True)
        if "share" in options.modes:
            import gpushm

            daemon = Path(f"/proc/{gpushm.status().pid}/stat").read_text().rpartition(")")[2].split()
            os.kill(int(daemon[1]), signal.SIGTERM)


if __name__ == "__main__":
    main()
