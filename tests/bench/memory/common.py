# SPDX-License-Identifier: MIT
"""What the rows of bench-memory share: a daemon with two pools, models in them, worker processes, and how a row is printed.

The pools are `models` and `twins`: of the host's memory, or with GPUSHM_GPU=1 vmm and pinned.
"""
import contextlib
import multiprocessing
import os
import random
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "python"))

from daemon import BUILD, Daemon

GPU = os.environ.get("GPUSHM_GPU") == "1"
PIECE = 64 << 20  # of a model that is filled
CONFIG = """
[daemon]
keep=0
[pool models]
{models}
size={room}
pending-max-age=0
[pool twins]
{twins}
size={all}
"""
processes = multiprocessing.get_context("forkserver")  # no process forks one that has a connection or a context
results = []


@contextlib.contextmanager
def pools(room, n, size, source=None):
    """A daemon whose pool has room for so many of n models. Gives their names.

    All have a twin, and are evicted. With a source all are loaded from that file, and have no twin.
    """
    size = -(-size // (2 << 20)) * (2 << 20) if GPU else size
    kinds = ("kind=vmm\ndevice=0", "kind=pinned") if GPU else ("kind=host", "kind=host")
    daemon = Daemon(CONFIG.format(models=kinds[0], twins=kinds[1], room=room * size, all=(n + 1) * size))
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    names = [f"m{i}" for i in range(n)]
    try:
        if source:
            for name in names:
                ctl("load", "--keep", "0", "--pool", "models", source, name)
        else:
            fill(names, room, size)
        yield names
    finally:
        daemon.remove()


def fill(names, room, size):
    """A process that demotes starts the driver, so it takes as many models as there is room for."""
    with connection() as c:
        for at in range(0, len(names), room):
            for i in range(at, min(at + room, len(names))):
                create(c, names[i], size, i + 1)
            ctl("demote", "--pool", "twins", *names[at:at + room])


def create(c, name, size, byte):
    """A sealed model, all of that byte."""
    array = c.create(name, size, pool="models")
    for at in range(0, size, PIECE):
        n = min(PIECE, size - at)
        array[at:at + n].copy_from_host(bytes([byte]) * n)
    array.publish("sealed")
    array.close()


def connection():
    import gpushm

    return gpushm.connect(os.environ["GPUSHM_SOCKET"])


def answer(array):
    """What a service does with a model: reads some of it. Returns what is in it."""
    out = bytearray(64)
    array[:64].copy_to_host(out)
    return out[63]


def ctl(*words):
    return subprocess.run([BUILD / "gpushmctl", *words], check=True, stdout=subprocess.PIPE, text=True).stdout


def metrics(pool="models"):
    """The samples of the daemon and of that pool, by their names."""
    found = {}
    for line in ctl("metrics").splitlines():
        name, _, value = line.rpartition(" ")
        if not line.startswith("#"):
            found[name.split("{")[0] if f'pool="{pool}"' in name else name] = float(value)
    return found


def zipf(n, s, seed):
    """An endless sequence of numbers below n, the first ones often."""
    chance = random.Random(seed)
    weights = [sum(1 / (k + 1) ** s for k in range(i + 1)) for i in range(n)]
    while True:
        yield from chance.choices(range(n), cum_weights=weights, k=1024)


def run_workers(work, *args):
    """Runs work(*each) for each of args in a process of its own. Returns what they return, in their order."""
    with contextlib.ExitStack() as stack:
        ends = []
        for each in args:
            worker, end = start(_work, work, each)
            ends.append(end)
            stack.callback(worker.join)
        return [end.recv() for end in ends]


def _work(end, work, args):
    end.send(work(*args))


def start(work, *args):
    """Runs work(end, *args) in a process. Returns that, and the other end."""
    ours, theirs = processes.Pipe()
    worker = processes.Process(target=_start, args=(os.environ["GPUSHM_SOCKET"], theirs, work, args), daemon=True)
    worker.start()
    theirs.close()
    return worker, ours


def _start(socket, end, work, args):
    os.environ["GPUSHM_SOCKET"] = socket  # the server of processes has that of the first daemon
    work(end, *args)


def timed(function, *args):
    """Runs it. Returns the ms that it took."""
    start = time.monotonic_ns()
    function(*args)
    return (time.monotonic_ns() - start) / 1e6


def p99(values):
    return statistics.quantiles(values, n=100)[98] if len(values) > 1 else values[0]


def times(values):
    """Of values in ms: as the tables have them."""
    return f"{statistics.median(values):.3f}, p99 {p99(values):.3f} ms ({len(values):,})" if values else "none"


def pss_kib():
    """The memory of the host that this process has, its part of what it shares with others."""
    with open("/proc/self/smaps_rollup") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("Pss:"))


def row(what, beside, ours, wanted="", **numbers):
    """Prints a line of the table. The numbers are for plots."""
    print(f"| {what} | {beside} | {ours} | {wanted} |", flush=True)
    results.append({"what": what, "beside": beside, "ours": ours, "wanted": wanted, **numbers})
