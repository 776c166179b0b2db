# SPDX-License-Identifier: MIT
"""Park and unpark of a worker with one model, beside the start of the same worker; then rounds while other kernels run.

Each answer is that of a CUDA graph which was captured at the start, over all of the model. Needs driver 570. Without a GPU
it runs over the fake driver, with FAKECUDA_STATE, and measures nothing: LD_LIBRARY_PATH=build/fakecuda.
"""
import concurrent.futures
import contextlib
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import common
import graphs
from daemon import Daemon

PIECE = 256 << 20
EXAMPLE = Path(__file__).parents[3] / "client/python/examples/parked_services.py"
PARK_GIB = (3, 48) if common.GPU else (0.03,)


def used_mib():
    """What all processes take of the GPU; 0 without one."""
    if not common.GPU:
        return 0
    words = ["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits", "-i", "0"]
    return int(subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout)


def sum_by_graph(array):
    """A function that returns a checksum of the whole model, by a graph that is captured here."""
    if not common.GPU:
        return lambda: common.answer(array)
    import cupy

    model, stream = cupy.from_dlpack(array).view(cupy.uint32), cupy.cuda.Stream(non_blocking=True)
    out = cupy.zeros(1, cupy.uint64)
    add = cupy.RawKernel("""extern "C" __global__ void add(const unsigned *m, size_t n, unsigned long long *out) {
        unsigned long long s = 0;
        for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
            s += m[i] * (i % 1021 + 1);
        atomicAdd(out, s);
    }""", "add")
    with stream:
        out.fill(0)
        add((512,), (256,), (model, model.size, out))
        stream.synchronize()
        stream.begin_capture()
        out.fill(0)
        add((512,), (256,), (model, model.size, out))
        graph = stream.end_capture()

    def run():
        graph.launch(stream)
        stream.synchronize()
        return int(out.get()[0])

    return run


def serve(end, promises):
    """Answers until it is told None, and lets go of the model between requests."""
    import gpushm

    if promises:
        gpushm.may_park()
    array = gpushm.open("m", timeout=60)
    run = sum_by_graph(array)
    first = run()
    array.suspend()
    end.send((os.getpid(), first))
    while (hold := end.recv()) is not None:
        began = time.monotonic_ns()
        array.resume(timeout=60)
        back = time.monotonic_ns()
        end.send((run(), (back - began) / 1e6))
        if not hold:
            array.suspend()
            end.send(None)


@contextlib.contextmanager
def model(size):
    """A daemon with one model of that size."""
    daemon = Daemon(f"[pool models]\nkind=vmm\ndevice=0\nsize={size}\n")
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    os.environ["GPUSHMCTL"] = str(common.BUILD / "gpushmctl")
    try:
        with common.connection() as c:
            array = c.create("m", size, pool="models")
            piece = os.urandom(min(PIECE, size))
            for at in range(0, size, len(piece)):
                array[at:at + len(piece)].copy_from_host(piece[:size - at])
            array.publish("sealed")
            array.close()
            yield c
    finally:
        daemon.remove()


def answer(end, hold=False):
    end.send(hold)
    found = end.recv()
    if not hold:
        end.recv()
    return found


def started(promises=True):
    """A worker, what it answers, and the ms until it did."""
    began = time.monotonic_ns()
    worker, end = common.start(serve, promises)
    pid, first = end.recv()
    return worker, end, pid, first, (time.monotonic_ns() - began) / 1e6


def stop(worker, end):
    end.send(None)
    worker.join()


def refused(c, gib):
    """Parking what may not be parked says why, and the worker answers afterwards."""
    for promises, hold in (False, False), (True, True):
        worker, end, pid, first, _ = started(promises)
        if hold:
            answer(end, hold)
        try:
            c.park(pid, timeout=1)
            said = "PARKED"
        except Exception as e:
            said = str(e)
        right = answer(end)[0] == first
        common.row(f"park of {gib} GiB, {'mapped' if hold else 'no promise'}", "", f"{said}; it answers {right}", "refused")
        stop(worker, end)


def times(c, gib, rounds):
    before = used_mib()
    starts = []
    for _ in range(3):
        worker, end, pid, first, ms = started()
        starts.append(ms)
        if len(starts) < 3:
            stop(worker, end)
    running, parks, unparks, resumes, wrong, parked = used_mib(), [], [], [], 0, 0
    for _ in range(rounds):
        parks.append(common.timed(c.park, pid))
        parked = max(parked, used_mib() - before)
        unparks.append(common.timed(c.unpark, pid))
        out, resume = answer(end)
        resumes.append(resume)
        wrong += out != first
    stop(worker, end)
    start = f"start {statistics.median(starts):.0f} ms, {running - before} MiB"
    common.row(f"park, {gib} GiB", start, f"{common.times(parks)}; {parked} MiB while parked", "700 ms, 0 MiB", parks=parks)
    common.row(f"unpark, {gib} GiB", start, common.times(unparks), "400 ms", unparks=unparks)
    common.row(f"resume after it, {gib} GiB; {wrong} answers wrong", "", common.times(resumes), "", resumes=resumes)


def rounds_of(worker, rounds, until):
    """Returns how many rounds of park and unpark there were, and how many of the worker's answers were others."""
    _, end, pid, first, _ = worker
    done = wrong = 0
    with common.connection() as c:
        while done < rounds and time.monotonic() < until:
            c.park(pid)
            c.unpark(pid)
            wrong += answer(end)[0] != first
            done += 1
    return done, wrong


def beside_kernels(gib, args):
    """Rounds of some workers beside each other, while another process's kernels run."""
    other, theirs = common.start(graphs.work) if common.GPU else (None, None)
    if other:
        theirs.recv()
    workers, began = [started() for _ in range(args.parked)], time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(args.parked) as pool:
        found = list(pool.map(lambda w: rounds_of(w, -(-args.rounds // args.parked), began + args.most), workers))
    took = time.monotonic() - began
    for worker, end, *_ in workers:
        stop(worker, end)
    if other:
        theirs.send(None)
        other.join()
    done, wrong = map(sum, zip(*found))
    common.row(f"{done:,} rounds of park and unpark beside kernels, {gib} GiB, {args.parked} workers, {took:.0f} s", "",
               f"{wrong} outputs differ", "0", wrong=wrong)


def services(requests=60, n=20):
    """The example: a program that holds the sockets, and parks what nobody asks."""
    daemon = Daemon(f"[pool models]\nkind=vmm\ndevice=0\nsize={4 * n}M\n")
    try:
        words = [sys.executable, EXAMPLE, "models", str(n), str(requests)]
        env = os.environ | {"GPUSHM_SOCKET": daemon.socket, "GPUSHMCTL": str(common.BUILD / "gpushmctl")}
        done = subprocess.run(words, env=env, capture_output=True, text=True)
        common.row(f"{n} services that are parked while nobody asks them", "", done.stdout.strip() or done.stderr[-300:], "none fails")
    finally:
        daemon.remove()


def run(args):
    for gib in PARK_GIB:
        try:
            with model(int(gib * (1 << 30)) // (4 << 20) * (4 << 20)) as c:
                if gib == PARK_GIB[0]:
                    refused(c, gib)
                times(c, gib, 10 if common.GPU else 3)
                if gib == PARK_GIB[0]:
                    beside_kernels(gib, args)
        except Exception as e:
            common.row(f"park, {gib} GiB", "", f"{type(e).__name__}: {e}", "")
    services()
