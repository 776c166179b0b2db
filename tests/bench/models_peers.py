# SPDX-License-Identifier: MIT
"""Loads a safetensors file to the GPU with what people use today, beside tests/bench/models_load.c.

    python3 tests/bench/models_peers.py FILE [--rounds N] [--json FILE]

Each way runs in a process of its own, N times; the first round has what is started once. "call" is the best round's
time, with the driver and the libraries started; "process" is the whole process with one round. A way whose package is
not installed is left out, and said so.
"""

import argparse
import json
import os
import subprocess
import sys
import time


def safetensors_load(path):
    """load_file of the format's own library."""
    import safetensors.torch

    return safetensors.torch.load_file(path, device="cuda:0")


def safetensors_cpu(path):
    """The same to the CPU, and from there to the GPU."""
    import safetensors.torch

    return {k: v.to("cuda:0") for k, v in safetensors.torch.load_file(path).items()}


def fastsafetensors_load(path):
    """fastsafetensors without GPUDirect Storage, which needs a kernel module."""
    from fastsafetensors import SafeTensorsFileLoader, SingleGroup

    loader = SafeTensorsFileLoader(SingleGroup(), "cuda:0", nogds=True)
    loader.add_filenames({0: [path]})
    buffers = loader.copy_files_to_device()
    return loader, buffers, {k: buffers.get_tensor(k) for k in loader.get_keys()}


def runai_load(path):
    """The run:ai streamer."""
    from runai_model_streamer import SafetensorsStreamer

    with SafetensorsStreamer() as streamer:
        streamer.stream_file(path)
        return {k: v.to("cuda:0", non_blocking=True) for k, v in streamer.get_tensors()}


def instanttensor_load(path):
    """InstantTensor."""
    from instanttensor import safe_open

    with safe_open(path, framework="pt", device=0) as f:
        return dict(f.tensors())


def gpushm_load(path):
    """gpushm's own, with the daemon of $GPUSHM_SOCKET."""
    import gpushm.torch

    return gpushm.torch.load_file(path, device="cuda:0")


WAYS = {
    "gpushm": ("gpushm", gpushm_load),
    "safetensors": ("safetensors", safetensors_load),
    "safetensors-cpu": ("safetensors", safetensors_cpu),
    "fastsafetensors": ("fastsafetensors", fastsafetensors_load),
    "runai": ("runai_model_streamer", runai_load),
    "instanttensor": ("instanttensor", instanttensor_load),
}


def one_way(way, path, rounds):
    """In a process of its own: prints the seconds of each round."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda:0")
    seconds = []
    for _ in range(rounds):
        torch.cuda.synchronize()
        start = time.perf_counter()
        loaded = WAYS[way][1](path)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
        del loaded
        torch.cuda.empty_cache()
    print(json.dumps(seconds))


def is_installed(package):
    import importlib.util

    return importlib.util.find_spec(package) is not None


def run_way(way, path, rounds):
    """Returns the seconds of its rounds, and of the process; or None and the last line of its errors."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, __file__, path, "--way", way, "--rounds", str(rounds)],
        text=True,
        capture_output=True,
        check=False,
    )
    seconds = time.perf_counter() - start
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["it failed"])[-1]
    return json.loads(done.stdout.splitlines()[-1]), seconds


def measure(way, path, rounds):
    """Prints a row, and returns it for --json."""
    size = os.stat(path).st_size
    calls, why = run_way(way, path, rounds)
    if calls is None:
        print(f"{way:20} failed: {why}")
        return None
    _, process = run_way(way, path, 1)
    if not isinstance(process, float):
        return None
    print(
        f"{way:20} {size / min(calls) / 1e9:6.1f} GB/s  {min(calls) * 1e3:8.1f} ms; "
        f"process {size / process / 1e9:5.1f} GB/s  {process * 1e3:8.1f} ms",
        flush=True,
    )
    return {
        "row": f"peer_{way}",
        "what": way,
        "bytes": size,
        "best_gbs": size / min(calls) / 1e9,
        "process_gbs": size / process / 1e9,
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--json")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.way:
        one_way(args.way, args.file, args.rounds)
        return
    rows = []
    for way, (package, _) in WAYS.items():
        if is_installed(package):
            rows.append(measure(way, args.file, args.rounds))
        else:
            print(f"{way:20} left out: no package {package}")
    if args.json:
        with open(args.json, "a", encoding="utf-8") as f:
            f.writelines(json.dumps(row) + "\n" for row in rows if row)


if __name__ == "__main__":
    main()
