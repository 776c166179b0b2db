# SPDX-License-Identifier: MIT
"""Objects of Ray by gpushm, beside Ray's object store, GLOO where there is PyTorch, and a transport that moves nothing.

    PYTHONPATH=build/python build/venv-fleet/bin/python tests/bench/ray_objects.py [--sizes 64,256,1024] [--rounds 5]

An actor returns an array, which two others of its node get, each reading one number of every page: once made, and passed
once more. All ways take turns in one run; medians. "in place" is written to gpushm.ray.empty(). At the end the time
from the SIGKILL of a source to the tensor in a reader that has not had it.
"""

import argparse
import os
import signal
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
sys.path.insert(0, str(Path(__file__).parents[1] / "python"))

import numpy as np
import ray
from daemon import Daemon
from ray.experimental import register_tensor_transport
from ray.experimental.rdt.tensor_transport_manager import TensorTransportMetadata

import gpushm.ray
from gpushm.ray._transport import NumpyTransport

try:
    import torch
except ImportError:
    torch = None


@dataclass
class Nothing(TensorTransportMetadata):
    """As little as there can be."""


class EmptyTransport(NumpyTransport):
    """Its objects have no bytes: what is left is Ray's own time."""

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        return Nothing(tensor_meta=[(t.shape, t.dtype) for t in rdt_object], tensor_device="cpu")

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        return [np.empty(0, dtype) for _, dtype in tensor_transport_metadata.tensor_meta]

    def garbage_collect(self, obj_id, tensor_transport_meta, tensors):
        pass


gpushm.ray.register()
register_tensor_transport("EMPTY", ["cpu"], EmptyTransport, np.ndarray)


class Actor:
    """A source and a reader. The array that it returns is there before."""

    def prepare(self, mib, kind):
        self.array = np.ones(mib << 18, "f4")
        if kind == "gloo":
            self.array = torch.from_numpy(self.array)
        return os.getpid()

    def plasma(self):
        return self.array

    @ray.method(tensor_transport="gpushm_numpy")
    def gpushm(self):
        return self.array

    @ray.method(tensor_transport="gpushm_numpy")
    def in_place(self):
        made = gpushm.ray.empty(self.array.shape, "f4")
        made[...] = self.array
        return made

    @ray.method(tensor_transport="empty")
    def empty(self):
        return self.array

    if torch:

        @ray.method(tensor_transport="gloo")
        def gloo(self):
            return self.array

    def read(self, array):
        return float(array[::1024].sum())


def turn(source, readers, way, mib):
    """Seconds of both."""

    def passed():
        start = time.perf_counter()
        found = ray.get([r.read.remote(ref) for r in readers])
        assert way == "empty" or found == [mib * 256.0] * 2, found
        return time.perf_counter() - start

    start = time.perf_counter()
    ref = getattr(source, way).remote()
    passed()
    made = time.perf_counter() - start
    times = made, min(passed() for _ in range(3))
    del ref
    time.sleep(0.2)
    return times


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default="64,256,1024", help="MiB")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sizes = [int(s) for s in args.sizes.split(",")]
    daemon = Daemon(f"[pool host]\nkind=host\nsize={3 * max(sizes)}M\n")
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=max(sizes) * 3 << 19)
    ways = ["plasma", "gpushm", "in_place", "empty", *(["gloo"] if torch else [])]
    for mib in sizes:
        actors = {way: [ray.remote(num_cpus=0)(Actor).remote() for _ in range(3)] for way in ways}
        for way, (source, *_) in actors.items():
            ray.get(source.prepare.remote(mib, way))
        if torch:
            from ray.experimental.collective import create_collective_group

            create_collective_group(actors["gloo"], backend="gloo")
        found = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way, (source, *readers) in actors.items():
                found[way].append(turn(source, readers, way, mib))
        for way, times in found.items():
            made, again = (statistics.median(t) * 1e3 for t in zip(*times, strict=True))
            print(f"| {mib} MiB | {way} | {made:.1f} ms | {again:.1f} ms |", flush=True)
        for some in actors.values():
            for actor in some:
                ray.kill(actor)
    times = []
    for _ in range(args.rounds):
        source, old, new = (ray.remote(num_cpus=0)(Actor).remote() for _ in range(3))
        pid, *_ = ray.get([a.prepare.remote(64, "gpushm") for a in (source, old, new)])
        ref = source.gpushm.remote()
        ray.get(old.read.remote(ref))
        ray.get(new.read.remote(source.gpushm.remote()))  # it has imported what it needs
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        ray.get(new.read.remote(ref))
        times.append(time.perf_counter() - start)
    print(f"from the kill of the source to a new reader's tensor: {statistics.median(times) * 1e3:.1f} ms")
    ray.shutdown()
    daemon.remove()


if __name__ == "__main__":
    main()
