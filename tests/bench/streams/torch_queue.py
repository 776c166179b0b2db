# SPDX-License-Identifier: MIT
"""Frames from process to process by torch.multiprocessing.Queue, beside tests/bench/streams.

    python3 tests/bench/streams/torch_queue.py SOCKET MEMORY

Reads lines and writes "ok" with numbers, or a reason why there are none:

    frame SIDES DEPTH BYTES WORK FRAMES 0           # us of each frame: filled, handed over, four bytes on the reader's host
    flow SIDES DEPTH BYTES WORK FRAMES PER_SECOND   # frames/s; with PER_SECOND, us of each frame through all processes

Each process that sends has DEPTH tensors, and uses one again when its reader has said that it has read it.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from typing import Any

WARM = 32


@dataclass
class Job:
    """A line: the same fields as struct job in board.h."""

    kind: str
    sides: int
    depth: int
    bytes: int
    work: int
    frames: int
    per_second: float

    @classmethod
    def read(cls, line: str) -> Job:
        """A queue is slow: a tenth of the frames is enough, unless they are paced."""
        kind, sides, depth, size, work, frames, per_second = line.split()
        paced = kind == "frame" or float(per_second) > 0
        count = int(frames) if paced else max(40, int(frames) // 10)
        return cls(kind, int(sides), int(depth), int(size), int(work), count, float(per_second))


def now() -> int:
    """The clock that all processes share, in ns."""
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC)


class Sender:
    """The tensors of one process, on their way to the next one."""

    def __init__(self, torch: Any, job: Job, queue: Any, back: Any) -> None:
        self.queue, self.back, self.depth, self.out = queue, back, job.depth, 0
        self.tensors = [torch.empty(job.bytes, dtype=torch.uint8, device="cuda") for _ in range(job.depth)]

    def begin(self, i: int) -> Any:
        """The tensor for frame i, when its reader has read it."""
        if self.out == self.depth:
            self.back.get()
            self.out -= 1
        return self.tensors[i % self.depth]

    def publish(self, tensor: Any) -> None:
        self.queue.put(tensor)
        self.out += 1

    def end(self) -> None:
        while self.out > 0:
            self.back.get()
            self.out -= 1


def stage(queue: Any, back: Any, next_queue: Any, next_back: Any, orders: Any, results: Any) -> None:
    """The main function of the other processes: a stage in the middle, or the last one."""
    import torch

    torch.cuda.init()
    torch.zeros(1, device="cuda")
    results.put("ready")
    for job, last in iter(orders.get, None):
        scratch = torch.empty(job.bytes, dtype=torch.uint8, device="cuda")
        sender = None if last else Sender(torch, job, next_queue, next_back)
        ends = []
        for i in range(job.frames + WARM):
            frame = queue.get()
            if sender:
                out = sender.begin(i)
                out[: job.work].copy_(frame[: job.work])
                sender.publish(out)
            elif job.kind == "frame":
                frame[:4].cpu()
            else:
                scratch[: job.work].copy_(frame[: job.work])
            torch.cuda.current_stream().synchronize()
            ends.append(now())
            del frame
            back.put(i)
        if sender:
            sender.end()
        else:
            results.put(ends)


class Queues:
    """This process makes the frames; two others are the next stages."""

    def __init__(self) -> None:
        import torch
        import torch.multiprocessing as mp

        if not torch.cuda.is_available():
            raise RuntimeError("torch has no GPU here")
        self.torch = torch
        torch.zeros(1, device="cuda")
        context = mp.get_context("spawn")
        queues = [context.Queue() for _ in range(4)]
        self.queue, self.back, self.results = queues[0], queues[1], context.Queue()
        self.orders = [context.Queue(), context.Queue()]
        self.stages = [
            context.Process(target=stage, args=(*queues, self.orders[0], self.results), daemon=True),
            context.Process(target=stage, args=(*queues[2:], None, None, self.orders[1], self.results), daemon=True),
        ]
        for process in self.stages:
            process.start()
        for _ in self.stages:
            self.results.get(timeout=80)

    def run(self, job: Job) -> list[float]:
        for n in range(job.sides - 1):
            self.orders[n].put((job, n == job.sides - 2))
        sender = Sender(self.torch, job, self.queue, self.back)
        begins = []
        start = now()
        for i in range(job.frames + WARM):
            if job.kind == "frame":
                sender.end()
                time.sleep(0.00025)
            elif job.per_second > 0:
                time.sleep(max(0.0, (start + i / job.per_second * 1e9 - now()) / 1e9))
            begins.append(now())
            tensor = sender.begin(i)
            tensor[: job.work].fill_(i % 250)
            sender.publish(tensor)
        sender.end()
        ends = self.results.get(timeout=60)
        if job.kind == "frame" or job.per_second > 0:
            return [(end - begin) / 1e3 for begin, end in list(zip(begins, ends))[WARM:]]
        return [job.frames * 1e9 / (ends[-1] - begins[WARM])]


def main() -> None:
    """Replies to lines until the end of the input; what can't be measured is a line, too."""
    queues, why = None, ""
    try:
        queues = Queues()
    except ImportError as error:
        why = f"no package {error.name}"
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
    for line in sys.stdin:
        if queues is None:
            print(why.replace("\n", " "), flush=True)
            continue
        try:
            print("ok", *(f"{v:.3f}" for v in queues.run(Job.read(line))), flush=True)
        except Exception as error:
            print(f"{type(error).__name__}: {error}".replace("\n", " "), flush=True)
            return


if __name__ == "__main__":
    main()
