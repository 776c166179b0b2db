# SPDX-License-Identifier: MIT
"""Eight workers that serve one model: when the last one has computed something, and what they take of the GPU.

    BUILD=build-gpu python3 tests/bench/models_workers.py FILE [--workers N] [--rounds N]

FILE is a safetensors file. It starts a daemon of its own from $BUILD, whose Python package is on PYTHONPATH. Each way starts its workers anew, at once, as processes of their own. "time" is from the exec
of the first worker to the end of the last one's first computation, which reads every tensor; "context" is the same
without a model, so that the difference is what the model costs. "memory" is the GPU memory that all workers take
together beyond that of the way without a model, in times of the file.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WAYS = {
    "context": "no model: Python, PyTorch and a context",
    "gpushm": "gpushm.torch.load_file: the first loads, the others attach",
    "safetensors": "safetensors.torch.load_file in each",
    "torch": "one process loads, torch.multiprocessing shares its tensors",
}


def compute(tensors):
    """Something small that needs every tensor."""
    import torch

    total = sum((t.flatten()[:1].float().sum() for t in tensors.values()), torch.zeros((), device="cuda"))
    return float(total)


def load(way, path):
    """The model, in a worker."""
    if way == "gpushm":
        import gpushm.torch

        return gpushm.torch.load_file(path, device=0)
    if way == "safetensors":
        import safetensors.torch

        return safetensors.torch.load_file(path, device="cuda:0")
    return {}


def report(start, tensors):
    """Computes, says how long it took, and holds the memory until stdin ends."""
    loaded = time.monotonic()
    compute(tensors)
    print(json.dumps({"load": loaded - start, "end": time.monotonic()}), flush=True)
    sys.stdin.read()


def worker(way, path):
    """One worker."""
    import torch

    torch.zeros(1, device="cuda")
    start = time.monotonic()
    report(start, load(way, path))


def torch_child(queue, results, held):
    """A worker of the way "torch"."""
    import torch

    torch.zeros(1, device="cuda")
    start = time.monotonic()
    tensors = queue.get()
    loaded = time.monotonic()
    compute(tensors)
    results.put({"load": loaded - start, "end": time.monotonic()})
    held.wait()
    del tensors


def torch_parent(path, workers):
    """Loads the model, and shares it with spawned workers."""
    import safetensors.torch
    import torch.multiprocessing as mp

    context = mp.get_context("spawn")
    results, held = context.Queue(), context.Event()
    queues = [context.Queue() for _ in range(workers)]
    processes = [context.Process(target=torch_child, args=(q, results, held)) for q in queues]
    for p in processes:
        p.start()
    tensors = safetensors.torch.load_file(path, device="cuda:0")
    for q in queues:
        q.put(tensors)
    for _ in processes:
        print(json.dumps(results.get()), flush=True)
    sys.stdin.read()
    held.set()
    for p in processes:
        p.join()


def used_bytes():
    """Memory of GPU 0 that is in use."""
    text = subprocess.check_output(
        ["nvidia-smi", "--id=0", "--query-gpu=memory.used", "--format=csv,noheader,nounits"], text=True
    )
    return int(text) << 20


def run(way, path, workers):
    """(seconds, memory, the workers' load times)."""
    one = [sys.executable, __file__, "--way", way, path, "--workers", str(workers)]
    before, start = used_bytes(), time.monotonic()
    processes = [
        subprocess.Popen(one, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(1 if way == "torch" else workers)
    ]
    lines = [json.loads(processes[0 if way == "torch" else i].stdout.readline()) for i in range(workers)]
    memory = used_bytes() - before
    for p in processes:
        p.stdin.close()
    for p in processes:
        p.wait()
    return max(line["end"] for line in lines) - start, memory, sorted(line["load"] for line in lines)


def main():
    """Runs all ways by turns."""
    parser = argparse.ArgumentParser()
    parser.add_argument("file")
    parser.add_argument("--workers", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--way", help="for the processes that this program starts")
    args = parser.parse_args()
    if args.way:
        return torch_parent(args.file, args.workers) if args.way == "torch" else worker(args.way, args.file)
    size = os.path.getsize(args.file)
    sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "python"))
    from daemon import Daemon

    daemon = Daemon()
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    found = {way: [] for way in WAYS}
    for _ in range(args.rounds):
        for way in WAYS:
            found[way].append(run(way, args.file, args.workers))
    context_time, context_memory = (statistics.median(r[i] for r in found["context"]) for i in (0, 1))
    print(f"{args.workers} workers, {size / 2**30:.1f} GiB; medians of {args.rounds} rounds")
    for way, rounds in found.items():
        seconds, memory = (statistics.median(r[i] for r in rounds) for i in (0, 1))
        loads = [1e3 * t for t in rounds[-1][2]]
        print(
            f"{way:12} {seconds:6.2f} s, {seconds - context_time:+6.2f} s beyond contexts; memory "
            f"{memory / 2**20:7.0f} MiB, {(memory - context_memory) / size:5.2f} models beyond contexts; "
            f"a worker's load: least {loads[0]:.0f} ms, most {loads[-1]:.0f} ms  ({WAYS[way]})",
            flush=True,
        )
    daemon.remove()
    return 0


if __name__ == "__main__":
    sys.exit(main())
