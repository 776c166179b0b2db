# SPDX-License-Identifier: MIT
"""Eight processes with one model each let go of it and come back: the first sleep, the next ones, waking, and the host's memory.

Beside gpushm, on a GPU and where they can be imported: the driver's calls alone, by as many processes; torch's own `.cpu()`
and `.cuda()`, torch_memory_saver, and the allocator of vLLM's sleep mode. Each process of theirs has a copy of the model of
its own, so those rows take as many processes as fit (--peers).
"""
import importlib.util
import statistics

import common

PROCESSES = 8
PEER_ROUNDS = 3  # which take seconds


class Ours:
    label = "gpushm"

    def __init__(self, size):
        import gpushm

        self.array = gpushm.open("m0", timeout=60)

    def sleep(self):
        self.array.suspend()

    def wake(self):
        self.array.resume(timeout=60)


class Driver:
    label, needs = "the driver's calls alone", "cuda.bindings"

    def __init__(self, size):
        import alone

        alone.start()
        self.memory = alone.Memory(size)
        self.sleep, self.wake = self.memory.suspend, self.memory.resume


class Peer:
    """Some 400 tensors of torch's, as a model has them."""

    def __init__(self, size):
        import torch

        self.torch = torch
        with self.place():
            self.tensors = [torch.ones(size // 385, dtype=torch.uint8, device="cuda") for _ in range(385)]
        torch.cuda.synchronize()


class Torch(Peer):
    label, needs = "torch's .cpu(), .cuda()", "torch"

    def place(self):
        return self.torch.inference_mode()

    def sleep(self):
        self.tensors = [tensor.cpu() for tensor in self.tensors]
        self.torch.cuda.empty_cache()

    def wake(self):
        self.tensors = [tensor.cuda() for tensor in self.tensors]
        self.torch.cuda.synchronize()


class Saver(Peer):
    label, needs = "torch_memory_saver", "torch_memory_saver"

    def place(self):
        from torch_memory_saver import torch_memory_saver

        self.saver = torch_memory_saver
        self.saver.hook_mode = "torch"
        return self.saver.region(enable_cpu_backup=True)

    def sleep(self):
        self.saver.pause()

    def wake(self):
        self.saver.resume()


class Cumem(Peer):
    label, needs = "vLLM's cumem", "vllm"

    def place(self):
        from vllm.device_allocator.cumem import CuMemAllocator

        self.allocator = CuMemAllocator.get_instance()
        return self.allocator.use_memory_pool(tag="weights")

    def sleep(self):
        self.allocator.sleep(offload_tags=("weights",))

    def wake(self):
        self.allocator.wake_up()


def sleep_and_wake(way, size, rounds, all_are_there):
    it = way(size)
    all_are_there.wait()
    before, first = common.pss_kib(), common.timed(it.sleep)
    asleep, wakes, sleeps = common.pss_kib() - before, [], []
    for _ in range(rounds):
        wakes.append(common.timed(it.wake))
        sleeps.append(common.timed(it.sleep))
    return first, statistics.median(sleeps), statistics.median(wakes), asleep


def measure(way, processes, size, rounds):
    all_are_there = common.processes.Barrier(processes, timeout=60)
    found = common.run_workers(sleep_and_wake, *[(way, size, rounds, all_are_there)] * processes)
    first, sleep, wake, host = map(statistics.median, zip(*found))
    return {"way": way.label, "processes": processes, "first": first, "sleep": sleep, "wake": wake, "host_kib": host}


def text(it):
    return f"{it['first']:.3f}, {it['sleep']:.3f}, {it['wake']:.3f} ms, {it['host_kib'] / 1024:+.1f} MiB of the host"


def found(package):
    try:
        return importlib.util.find_spec(package)
    except ImportError:  # of what it is in
        return None


def run(args):
    size, counts = int(args.gib * 2**30), (PROCESSES, args.peers)
    with common.pools(1, 1, size):
        ours = [measure(Ours, processes, size, args.rounds) for processes in counts]
    ways = []
    for other in [way for way in (Driver, Torch, Saver, Cumem) if common.GPU and way.needs in args.beside.split(",")]:
        if not found(other.needs):
            print(f"no {other.needs} here: its row is left out", flush=True)
            continue
        many = other is Driver
        ways.append(measure(other, PROCESSES if many else args.peers, size, args.rounds if many else min(args.rounds, PEER_ROUNDS)))
        row(args, ours, ways[-1])
    if not ways:
        row(args, ours)


def row(args, ours, other=None):
    common.row(f"{PROCESSES} processes (and {args.peers}, as beside), {args.gib:g} GiB: first sleep, sleep, wake, memory asleep",
               f"{other['way']}, {other['processes']}: {text(other)}" if other else "not measured",
               f"{text(ours[0])} ({text(ours[1])})", ">= 100 x, 0 bytes", asleep=[*ours, *([other] if other else [])])
