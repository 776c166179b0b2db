# SPDX-License-Identifier: MIT
"""Objects of Ray between two machines, network namespaces with a daemon and a relay each: gpushm beside Ray's store.

    PYTHONPATH=build/python build/venv-fleet/bin/python tests/bench/ray_nodes.py [--mib 1024] [--rounds 5]

An actor of the first machine returns an array, which two actors of the second one get, in turns. A row has the median
time, the median of the ratios, and what the first machine sent for one object, in sizes of it. Ends with 77 where there
are no namespaces.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / d) for d in ("python/fleet", "nodes", "python")]


def driver(args):
    """On the first machine."""
    import numpy as np
    import ray

    import gpushm.ray

    gpushm.ray.register()

    class Actor:
        def prepare(self, mib):
            self.array = np.ones(mib << 18, "f4")

        def plasma(self):
            return self.array

        @ray.method(tensor_transport="gpushm_numpy")
        def gpushm(self):
            return self.array

        def read(self, array):
            return float(array[::1024].sum())

    def on(address):
        return ray.remote(num_cpus=0, resources={f"node:{address}": 0.01})(Actor).remote()

    ray.init(address=f"{args.addresses[0]}:6379", log_to_driver=False)
    # Once an actor has made an object of a transport, it pickles arrays for Ray's store slowly: plasma has its own.
    ways = {way: [on(args.addresses[i]) for i in (0, 1, 1)] for way in ("plasma", "gpushm")}
    ray.get([source.prepare.remote(args.mib) for source, *_ in ways.values()])
    found = {way: [] for way in ways}
    for _ in range(args.rounds + 1):
        for way, (source, *readers) in ways.items():
            before, start = sent(), time.perf_counter()
            ref = getattr(source, way).remote()
            assert ray.get([r.read.remote(ref) for r in readers]) == [args.mib * 256.0] * 2
            found[way].append((time.perf_counter() - start, (sent() - before) / (args.mib << 20)))
            del ref
            time.sleep(0.5)  # until it is freed
    for way, rows in found.items():
        times, sizes = zip(*rows[1:], strict=True)  # the first one starts the holders
        ratio = statistics.median(b / a for a, (b, _) in zip(times, found["plasma"][1:], strict=True))
        row = f"| {args.mib} MiB | {way} | {statistics.median(times) * 1e3:.0f} ms | {ratio:.2f} x"
        print(f"{row} | {statistics.median(sizes):.2f} |", flush=True)
    ray.shutdown()


def sent():
    """Bytes, by this machine's network card."""
    lines = Path("/proc/net/dev").read_text().splitlines()
    return next(int(line.split(":")[1].split()[8]) for line in lines if line.strip().startswith("eth0:"))


def lab(args):
    """Makes the machines, and runs the driver on the first one."""
    import namespaces

    if why := namespaces.enter():
        print(why)
        return 77
    from conftest import Program
    from node import Node

    folder = Path(tempfile.mkdtemp(prefix="gpushm-ray-"))
    nodes = [Node(pools=f"[pool host]\nkind=host\nsize={3 * args.mib}M\n") for _ in range(2)]
    programs = []
    try:
        for i, node in enumerate(nodes):
            env = node.env | {"GPUSHM_RAY_RELAY": node.relay(insecure=True).url}
            where = f"--address={nodes[0].address}:6379" if i else "--head"
            words = [sys.executable, "-m", "ray.scripts.scripts", "start", where, f"--node-ip-address={node.address}"]
            store = max(args.mib * 3, 160) << 19  # Ray takes 75 MiB or more
            words += ["--num-cpus=8", f"--object-store-memory={store}", "--block", "--disable-usage-stats"]
            words += [] if i else ["--port=6379", "--include-dashboard=false"]
            programs.append(Program(node.within(*words), folder / f"node{i}", **env))
            end = time.monotonic() + 120
            while "--block" not in programs[-1].said() and "successfully" not in programs[-1].said():
                assert time.monotonic() < end and programs[-1].process.poll() is None, programs[-1].said()
                time.sleep(0.1)
        words = [sys.executable, __file__, *sys.argv[1:], "--addresses", *(node.address for node in nodes)]
        done = nodes[0].run(*words, check=False, capture_output=False, env=os.environ | nodes[0].env)
        return done.returncode
    finally:
        for program in reversed(programs):
            program.end(signal.SIGTERM)
        for node in nodes:
            node.remove()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--mib", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--addresses", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.exit(driver(args) if args.addresses else lab(args))


if __name__ == "__main__":
    main()
