# SPDX-License-Identifier: MIT
"""One way to hand GPU memory to another process, measured.

    python3 tests/bench/peer.py WAY BUILD SOCKET POOL COUNT:BYTES...

This process has the memory; a second one, started with multiprocessing's "spawn", has a context and waits for bytes
in a pipe. It reports the time from the bytes in the pipe to arrays that can be used, frees the arrays, and the next
round begins. Each case prints a line of JSON: "first" is its first round.

A way has make(count, each) and handles() in the process that has the memory; start(), open(handles) and close(opened)
in the other one.
"""
import contextlib
import json
import multiprocessing
import multiprocessing.reduction
import os
import pickle
import sys
import time

import library

ROUNDS = {1: 200, 300: 20}  # by the number of arrays; else ROUNDS_MANY
ROUNDS_MANY = 6
SECONDS = 3.0               # a case ends then at the latest, if it has three rounds


class Failed(Exception):
    """The error that ended the second process."""


class Gpushm:
    """One buffer with all arrays; the pipe carries its name. The C library opens it, through ctypes."""

    def __init__(self, build, socket, pool):
        self.args, self.pool, self.serial = (build, socket), pool, 0

    def make(self, count, each):
        self.library = library.Library(*self.args)
        self.name, self.count = f"peers/{self.serial}", count
        self.serial += 1
        self.library.publish(self.name, self.pool, count, each)

    def handles(self):
        return self.name.encode(), self.count

    def drop(self):
        self.library.unlink(self.name)

    def start(self):
        if self.pool != "host":
            library.start_context()
        self.library = library.Library(*self.args)

    def open(self, handles):
        return self.library.open(handles[0]), []

    def close(self, opened):
        self.library.close(*opened)


class GpushmArrays(Gpushm):
    """The same, and an object for each array."""

    def open(self, handles):
        name, count = handles
        b = self.library.open(name)
        return b, [self.library.array_at(b, i) for i in range(count)]


class GpushmPython(Gpushm):
    """The same buffer, opened by the Python package."""

    def start(self):
        build, socket = self.args
        if self.pool != "host":
            library.start_context()
        os.environ["GPUSHM_SOCKET"] = socket
        sys.path.insert(0, os.path.join(build, "python"))
        import gpushm
        self.package = gpushm

    def open(self, handles):
        return self.package.open_many(handles[0].decode())

    def close(self, opened):
        opened.close()


class GpushmNeighbour(Gpushm):
    """A buffer of a mempool, while another one of the same pool stays open: the driver has already mapped the block
    that contains both."""

    def make(self, count, each):
        super().make(count, each)
        self.library.publish(self.name + ".neighbour", self.pool, count, each)

    def drop(self):
        super().drop()
        self.library.unlink(self.name + ".neighbour")

    def start(self):
        super().start()
        self.beside, self.neighbour = None, None

    def open(self, handles):
        if self.beside != handles[0]:
            if self.neighbour:
                self.library.close(self.neighbour)
            self.beside, self.neighbour = handles[0], self.library.open(handles[0] + b".neighbour")
        return super().open(handles)


class Many:
    """An allocation for each array, as with all other ways."""

    def __init__(self, *args):
        self.arrays = []

    def make(self, count, each):
        self.arrays = [self.allocate(each) for _ in range(count)]

    def handles(self):
        return [self.handle(a) for a in self.arrays]

    def drop(self):
        self.arrays.clear()

    def open(self, handles):
        return [self.open_one(h) for h in handles]

    def close(self, opened):
        for a in opened:
            self.close_one(a)


class CudaCore(Many):
    def __init__(self, *args):
        super().__init__()
        self.resource = None

    def allocate(self, each):
        try:
            from cuda.core import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
        except ImportError:
            from cuda.core.experimental import Device, DeviceMemoryResource, DeviceMemoryResourceOptions
        if self.resource is None:
            self.device = Device(0)
            self.device.set_current()
            self.resource = DeviceMemoryResource(self.device, options=DeviceMemoryResourceOptions(
                max_size=34 << 30, ipc_enabled=True))
        return self.resource.allocate(each, stream=self.device.default_stream)

    def handle(self, a):
        return a

    def drop(self):
        for a in self.arrays:
            a.close(self.device.default_stream)
        self.device.sync()
        self.arrays.clear()

    def start(self):
        try:
            from cuda.core import Device
        except ImportError:
            from cuda.core.experimental import Device
        self.device = Device(0)
        self.device.set_current()

    def open_one(self, handle):
        return handle  # unpickling it has opened it

    def close(self, opened):
        for a in opened:
            a.close(self.device.default_stream)
        self.device.sync()


class Numba(Many):
    def allocate(self, each):
        import numpy
        from numba import cuda
        return cuda.device_array(each, numpy.uint8)

    def handle(self, a):
        return a.get_ipc_handle()

    def start(self):
        from numba import cuda
        cuda.current_context()

    def open_one(self, handle):
        return handle, handle.open()

    def close_one(self, opened):
        opened[0].close()


class Torch(Many):
    def allocate(self, each):
        import torch
        return torch.empty(each, dtype=torch.uint8, device="cuda")

    def handle(self, a):
        from torch.multiprocessing.reductions import reduce_tensor
        return reduce_tensor(a)

    def drop(self):
        import torch
        self.arrays.clear()
        torch.cuda.ipc_collect()
        torch.cuda.empty_cache()

    def start(self):
        import torch
        torch.zeros(1, device="cuda")

    def open_one(self, handle):
        return handle[0](*handle[1])

    def close(self, opened):
        opened.clear()


class Cupy(Many):
    def allocate(self, each):
        import cupy
        return cupy.cuda.runtime.malloc(each)

    def handle(self, a):
        import cupy
        return cupy.cuda.runtime.ipcGetMemHandle(a)

    def drop(self):
        import cupy
        for a in self.arrays:
            cupy.cuda.runtime.free(a)
        self.arrays.clear()

    def start(self):
        import cupy
        cupy.zeros(1)

    def open_one(self, handle):
        import cupy
        return cupy.cuda.runtime.ipcOpenMemHandle(handle)

    def close_one(self, opened):
        import cupy
        cupy.cuda.runtime.ipcCloseMemHandle(opened)


WAYS = {"gpushm": Gpushm, "gpushm-again": Gpushm, "gpushm-mempool": Gpushm, "gpushm-neighbour": GpushmNeighbour,
        "gpushm-arrays": GpushmArrays, "gpushm-python": GpushmPython,
        "cuda.core": CudaCore, "numba": Numba, "torch": Torch, "torch-expandable": Torch, "cupy": Cupy}


def attach_for_ever(way, args, pipe):
    """The main function of the second process."""
    try:
        attach_each(WAYS[way](*args), pipe)
    except Exception as error:
        pipe.send(Failed(f"{type(error).__name__}: {error}"))


def attach_each(peer, pipe):
    peer.start()
    pipe.send("ready")
    while True:
        data = pipe.recv_bytes()
        if data == b"end":
            return
        start = time.perf_counter()
        opened = peer.open(pickle.loads(data))
        end = time.perf_counter()
        pipe.send(end - start)
        peer.close(opened)
        del opened
        pipe.send("closed")


def hear(pipe):
    reply = pipe.recv()
    if isinstance(reply, Failed):
        raise reply
    return reply


def one_round(peer, pipe):
    data = bytes(multiprocessing.reduction.ForkingPickler.dumps(peer.handles()))
    start = time.perf_counter()
    pipe.send_bytes(data)
    attach = hear(pipe)
    whole = time.perf_counter() - start
    hear(pipe)
    return attach * 1e6, whole * 1e6


def figures(values):
    values = sorted(values)
    return {"n": len(values), "min": values[0], "median": values[len(values) // 2],
            "p99": values[len(values) * 99 // 100]}


def measure(peer, pipe, count, total):
    peer.make(count, total // count)
    rounds = []
    end = time.monotonic() + SECONDS
    while len(rounds) < ROUNDS.get(count, ROUNDS_MANY) + 1 and (len(rounds) < 4 or time.monotonic() < end):
        rounds.append(one_round(peer, pipe))
    peer.drop()
    return {"first": rounds[0][0], "attach": figures([r[0] for r in rounds[1:]]),
            "handed_over": figures([r[1] for r in rounds[1:]])}


def main():
    way, *args = sys.argv[1:5]
    context = multiprocessing.get_context("spawn")
    here, there = context.Pipe()
    peer = WAYS[way](*args)
    child = context.Process(target=attach_for_ever, args=(way, args, there), daemon=True)
    child.start()
    there.close()
    hear(here)
    for case in sys.argv[5:]:
        count, total = (int(n) for n in case.split(":"))
        result = {"way": way, "count": count, "bytes": total}
        try:
            result.update(measure(peer, here, count, total))
        except (EOFError, ConnectionError):
            child.join(10)
            result["error"] = f"the process that attaches ended with {child.exitcode}"
        except Failed as failed:
            result["error"] = str(failed)
            child.join(10)
        except Exception as error:
            result["error"] = f"{type(error).__name__}: {error}"
        print(json.dumps(result), flush=True)
        if not child.is_alive():
            return 1
        if "error" in result:
            with contextlib.suppress(Exception):
                peer.drop()
    here.send_bytes(b"end")
    child.join(10)
    return 0


if __name__ == "__main__":
    sys.exit(main())
