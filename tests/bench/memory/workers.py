# SPDX-License-Identifier: MIT
"""20 services, one model each, in a pool that holds six: from a request's arrival until its answer, by where the model was.

Requests come by Poisson, and by Zipf for the models; once to models with twins, and once to models that come from a file.
Beside it: a process for each model that is started on demand, reads the model from that file, and is ended when six others
were used since.
"""
import collections
import json
import os
import queue
import random
import subprocess
import sys
import tempfile
import threading
import time

import common

WORKERS, ROOM = 20, 6
BYTE = 7  # of the file
LOADER = """
import ctypes, os, sys
data = bytearray(os.path.getsize(sys.argv[1]))
open(sys.argv[1], "rb", buffering=0).readinto(data)
if sys.argv[2] == "gpu":
    from cuda.bindings import driver
    driver.cuInit(0)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0)[1])
    memory = driver.cuMemAlloc(len(data))[1]
    assert driver.cuMemcpyHtoD(memory, ctypes.addressof(ctypes.c_char.from_buffer(data)), len(data))[0] == 0
for line in sys.stdin:
    print(data[63], flush=True)
"""


def serve(end, model, byte):
    """Answers until it is told None, and lets go of the model between requests."""
    import gpushm

    array = gpushm.open(f"m{model}", timeout=60)
    if isinstance(array, gpushm.Buffer):
        array = array["w"]
    common.answer(array)  # which makes what it makes once
    array.suspend()
    end.send(None)
    while end.recv() is not None:
        where = gpushm.stat(f"m{model}").residence
        array.resume(timeout=60)
        right = common.answer(array) == byte
        end.send((where if right else "wrong", time.monotonic_ns()))
        array.suspend()
    array.close()


def arrivals(n, rate):
    """Models, each when its request arrives."""
    chance, models = random.Random(1), common.zipf(WORKERS, 1.0, 2)
    due = time.monotonic()
    for model in (next(models) for _ in range(n)):
        due += chance.expovariate(rate)
        time.sleep(max(0.0, due - time.monotonic()))
        yield model


def ours(args, source=None):
    found, ends, workers, threads = collections.defaultdict(list), [], [], []
    for model in range(WORKERS):
        worker, end = common.start(serve, model, BYTE if source else model + 1)
        workers.append(worker)
        ends.append((end, queue.SimpleQueue()))
    for end, _ in ends:
        end.recv()

    def forward(end, waiting):
        while (arrived := waiting.get()) is not None:
            end.send(1)
            where, answered = end.recv()
            found[where].append((answered - arrived) / 1e6)
        end.send(None)

    for each in ends:
        threads.append(threading.Thread(target=forward, args=each))
        threads[-1].start()
    for model in arrivals(args.asked, args.rate):
        ends[model][1].put(time.monotonic_ns())
    for _, waiting in ends:
        waiting.put(None)
    for it in threads + workers:
        it.join()
    return found


def on_demand(args, path):
    """Of processes that have the model in memory of their own; one request at a time."""
    found, there = collections.defaultdict(list), collections.OrderedDict()
    for model in arrivals(args.asked // 8, args.rate):
        start, where = time.monotonic_ns(), "resident"
        if model not in there:
            where = "started"
            if len(there) == ROOM:
                _, last = there.popitem(last=False)
                last.stdin.close()
                last.wait()
            there[model] = subprocess.Popen([sys.executable, "-c", LOADER, path, "gpu" if common.GPU else "host"],
                                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        there.move_to_end(model)
        there[model].stdin.write("\n")
        there[model].stdout.readline()
        found[where].append((time.monotonic_ns() - start) / 1e6)
    for process in there.values():
        process.stdin.close()
        process.wait()
    return found


def write_model(f, size):
    """A safetensors file whose one tensor has so many bytes."""
    header = json.dumps({"w": {"dtype": "U8", "shape": [size], "data_offsets": [0, size]}}).encode()
    header += b" " * (-len(header) % 8)
    f.write(len(header).to_bytes(8, "little") + header)
    for _ in range(size >> 20):
        f.write(bytes([BYTE]) * (1 << 20))
    f.flush()


def rows(args, found, beside, *kinds):
    for where, other in kinds:
        common.row(f"{WORKERS} services of {args.mib} MiB, room for {ROOM}: first answer, {where}",
                   f"a process a model, {other}: {common.times(beside[other])}", common.times(found[where]),
                   "" if not found["wrong"] else f"{len(found['wrong'])} WRONG", where=where, first=found[where],
                   beside_first=beside[other])


def run(args):
    size = args.mib << 20
    with tempfile.NamedTemporaryFile(dir="/dev/shm", suffix=".safetensors") as f:
        write_model(f, size)
        beside = on_demand(args, f.name)
        with common.pools(ROOM, WORKERS, size):
            rows(args, ours(args), beside, ("resident", "resident"), ("twin", "started"))
        with common.pools(ROOM, WORKERS, size, f.name):
            rows(args, ours(args, f.name), beside, ("source", "started"))
