# SPDX-License-Identifier: MIT
"""Objects of Ray by gpushm, beside Ray's object store, GLOO where there is PyTorch, and a transport that moves nothing.

    PYTHONPATH=build/python build/venv-fleet/bin/python tests/bench/ray_objects.py [--sizes 64,256,1024] [--rounds 5]

An actor returns an array, which two others of its node get, each reading one number of every page; then it is passed once
more. All ways take turns in one run. Columns: made and passed, the first time and the median; once more, the median.
"in place" is written to gpushm.ray.empty(). At the end the time from the SIGKILL of a source to the tensor in a reader
that has not had it.
"""

import argparse
import importlib.util
import os
import signal
import statistics
import sys
import time
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

torch = importlib.import_module("torch") if importlib.util.find_spec("torch") else None


class EmptyTransport(NumpyTransport):
    """Its objects have no bytes: what is left is Ray's own time."""

    tensor_transport_backend = "EMPTY"

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        return TensorTransportMetadata(tensor_meta=[(t.shape, t.dtype) for t in rdt_object], tensor_device="cpu")

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        return [np.empty(0, dtype) for _, dtype in tensor_transport_metadata.tensor_meta]

    garbage_collect = NumpyTransport.abort_transport


gpushm.ray.register()
register_tensor_transport("EMPTY", ["cpu"], EmptyTransport, np.ndarray)


class Actor:
    """A source and a reader. The array that it returns is there before."""

    def prepare(self, mib):
        self.array = np.ones(mib << 18, "f4")
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
            return torch.from_numpy(self.array)

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
    return time.perf_counter() - start, min(passed() for _ in range(3))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=[64, 256, 1024], type=lambda s: [*map(int, s.split(","))], help="MiB")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    daemon = Daemon(f"[pool host]\nkind=host\nsize={3 * max(args.sizes)}M\n")
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    ray.init(num_cpus=8, include_dashboard=False, log_to_driver=False, object_store_memory=max(args.sizes) * 3 << 19)
    ways = ["plasma", "gpushm", "in_place", "empty", *(["gloo"] if torch else [])]
    for mib in args.sizes:
        # Once an actor has made an object of a transport, it pickles arrays for Ray's store slowly: plasma has its own.
        actors = {own: [ray.remote(num_cpus=0)(Actor).remote() for _ in range(3)] for own in (True, False)}
        ray.get([source.prepare.remote(mib) for source, *_ in actors.values()])
        if torch:
            importlib.import_module("ray.experimental.collective").create_collective_group(actors[False], "gloo")
        found = {way: [] for way in ways}
        for _ in range(args.rounds):
            for way in ways:
                source, *readers = actors[way == "plasma"]
                found[way].append(turn(source, readers, way, mib))
                time.sleep(0.2)  # until it is freed
        for way, times in found.items():
            made, again = (statistics.median(t) * 1e3 for t in zip(*times, strict=True))
            print(f"| {mib} MiB | {way} | {times[0][0] * 1e3:.0f} ms | {made:.1f} ms | {again:.1f} ms |", flush=True)
        for actor in sum(actors.values(), []):
            ray.kill(actor)
    print(f"from the kill of the source to a new reader's tensor: {kills(args.rounds) * 1e3:.1f} ms")
    ray.shutdown()
    daemon.remove()


def kills(rounds):
    times = []
    for _ in range(rounds):
        source, old, new = (ray.remote(num_cpus=0)(Actor).remote() for _ in range(3))
        pid, *_ = ray.get([a.prepare.remote(64) for a in (source, old, new)])
        ref = source.gpushm.remote()
        ray.get(old.read.remote(ref))
        ray.get(new.read.remote(source.gpushm.remote()))  # it has imported what it needs
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        ray.get(new.read.remote(ref))
        times.append(time.perf_counter() - start)
    return statistics.median(times)


if __name__ == "__main__":
    main()
