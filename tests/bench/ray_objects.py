# SPDX-License-Identifier: MIT
"""Objects of Ray by gpushm, beside Ray's own ways, and beside a transport that moves nothing.

    PYTHONPATH=build/python build/venv-fleet/bin/python tests/bench/ray_objects.py [--sizes 64,256,1024] [--rounds 5]
    ... ray_objects.py --gpu [--tensors 1,443] [--no-nixl]    # with one GPU or more, and PyTorch with CUDA

An actor returns what it has, which two others of its node get, each reading one number of every page, or on a GPU of
every tensor; then it is passed once more. All ways take turns in one run. A row has the first time, the median, and the median of the ratios to the
first way of the same turn; then the same of once more. On the CPU: Ray's object store, gpushm, GLOO where there is
PyTorch; "empty" moves nothing, and its readers read as much of their own memory. Then the same of an array that the
actor computes each time; "in place" computes it into gpushm.ray.empty(). On a GPU: CUDA_IPC, gpushm, gpushm with
tensors that were made in gpushm.torch.memory(), NIXL where it is installed, and with two GPUs gpushm with readers on
the second one, which CUDA_IPC refuses; "empty_gpu" moves nothing. At the end the time from the SIGKILL of a source to the tensor in a reader that
has not had it. With --gpu --weights MIB eight actors get weights before that: when the first one has them, when each
other one has, and the memory of the GPU by their size.
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
if torch:
    import gpushm.torch


class EmptyTransport(NumpyTransport):
    """Its objects have no bytes: what is left is Ray's own time."""

    tensor_transport_backend = "EMPTY"
    own = {}  # arrays of the reader

    def extract_tensor_transport_metadata(self, obj_id, rdt_object):
        described = [((*t.shape,), t.dtype) for t in rdt_object]
        device = str(getattr(rdt_object[0], "device", "cpu")).partition(":")[0]
        return TensorTransportMetadata(tensor_meta=described, tensor_device=device)

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        for meta in tensor_transport_metadata.tensor_meta:
            if meta not in self.own:
                self.own[meta] = np.ones(*meta)
        return [self.own[meta] for meta in tensor_transport_metadata.tensor_meta]

    garbage_collect = NumpyTransport.abort_transport


class EmptyGpuTransport(EmptyTransport):
    """The same of tensors on a GPU."""

    tensor_transport_backend = "EMPTY_GPU"

    def recv_multiple_tensors(self, obj_id, tensor_transport_metadata, communicator_metadata, target_buffers=None):
        metas = tensor_transport_metadata.tensor_meta
        key = len(metas), metas[0]
        if key not in self.own:
            self.own[key] = [torch.ones(shape, dtype=dtype, device="cuda") for shape, dtype in metas]
        return self.own[key]


gpushm.ray.register()
register_tensor_transport("EMPTY", ["cpu"], EmptyTransport, np.ndarray)
if torch:
    register_tensor_transport("EMPTY_GPU", ["cuda"], EmptyGpuTransport, torch.Tensor)


class Actor:
    """A source and a reader. The array that it returns is there before."""

    def prepare(self, mib, tensors=0, in_place=False):
        """tensors: on a GPU; in_place: in memory of a buffer."""
        if in_place:
            with gpushm.torch.memory(f"bench/{os.getpid()}", (mib + 256) << 20, transient=True):
                self.array = [torch.ones((mib << 18) // tensors, device="cuda") for _ in range(tensors)]
        elif tensors:
            self.array = [torch.ones((mib << 18) // tensors, device="cuda") for _ in range(tensors)]
        else:
            self.array = np.ones(mib << 18, "f4")
        return os.getpid()

    def gpu_of_ray(self):
        return ray.get_gpu_ids()[0]

    def plasma(self):
        return self.array

    def plasma_made(self):
        return self.array * 1

    @ray.method(tensor_transport="gpushm_numpy")
    def gpushm(self):
        return self.array

    @ray.method(tensor_transport="gpushm_numpy")
    def gpushm_made(self):
        return self.array * 1

    @ray.method(tensor_transport="gpushm_numpy")
    def in_place(self):
        return np.multiply(self.array, 1, out=gpushm.ray.empty(self.array.shape, "f4"))

    @ray.method(tensor_transport="empty")
    def empty(self):
        return self.array

    if torch:

        @ray.method(tensor_transport="gloo")
        def gloo(self):
            return torch.from_numpy(self.array)

        @ray.method(tensor_transport="gpushm")
        def gpu(self):
            return self.array

        @ray.method(tensor_transport="cuda_ipc")
        def cuda_ipc(self):
            return self.array

        @ray.method(tensor_transport="empty_gpu")
        def empty_gpu(self):
            return self.array

        @ray.method(tensor_transport="nixl")
        def nixl(self):
            return self.array

    def weights(self, mib, stored):
        """Seconds until it has 32 tensors of that size together. stored: Ray's reference of them, else by gpushm.ray."""

        def load():
            return {f"{i}": torch.ones(mib << 13, device="cuda") for i in range(32)}

        start = time.perf_counter()
        if stored:
            self.kept = {name: torch.from_numpy(a).cuda() for name, a in ray.get(stored[0]).items()}
        else:
            self.kept = gpushm.ray.weights("bench", load)
        torch.cuda.synchronize()
        seconds = time.perf_counter() - start
        torch.cuda.empty_cache()  # of what load() made
        return seconds

    def read(self, array):
        if isinstance(array, list):
            return float(torch.stack([t[0] for t in array]).sum())
        return float(array[::1024].sum())


def turn(source, readers, way, wanted):
    """Seconds of both."""

    def passed():
        start = time.perf_counter()
        found = ray.get([r.read.remote(ref) for r in readers])
        assert found == [wanted] * len(readers), found
        return time.perf_counter() - start

    start = time.perf_counter()
    ref = getattr(source, way).remote()
    passed()
    return time.perf_counter() - start, min(passed() for _ in range(3))


def compare(title, ways, rounds, wanted):
    """ways: their names, methods, sources and readers. Prints a row of each."""
    found = {name: [] for name, *_ in ways}
    for _ in range(rounds):
        for name, method, (source, *readers) in ways:
            found[name].append(turn(source, readers, method, wanted))
            time.sleep(0.2)  # until it is freed
    first = [*found.values()][0]
    for name, times in found.items():
        words = []
        for now, beside in zip(zip(*times, strict=True), zip(*first, strict=True), strict=True):
            ratio = statistics.median(b / a for a, b in zip(now, beside, strict=True))
            words.append(f"{statistics.median(now) * 1e3:.1f} ms ({ratio:.2f} x)")
        print(f"| {title} | {name} | {times[0][0] * 1e3:.0f} ms | {' | '.join(words)} |", flush=True)


def on_cpu(args):
    for mib in args.sizes:
        # Once an actor has made an object of a transport, it pickles arrays for Ray's store slowly: plasma has its own.
        plasma, others = ([ray.remote(num_cpus=0)(Actor).remote() for _ in range(3)] for _ in range(2))
        ray.get([source.prepare.remote(mib) for source, *_ in (plasma, others)])
        ways = [("plasma", "plasma", plasma), *((way, way, others) for way in ("gpushm", "empty"))]
        made = [("plasma", "plasma_made", plasma), ("gpushm", "gpushm_made", others), ("in place", "in_place", others)]
        if torch:
            importlib.import_module("ray.experimental.collective").create_collective_group(others, "gloo")
            ways.append(("gloo", "gloo", others))
        compare(f"{mib} MiB", ways, args.rounds, mib * 256.0)
        compare(f"{mib} MiB, computed", made, args.rounds, mib * 256.0)
        for actor in {*plasma, *others}:
            ray.kill(actor)
    print_kills(args.rounds, "gpushm", 0, lambda: ray.remote(num_cpus=0)(Actor).remote())


def on_gpu(args):
    """Each way has actors of its own: what one transport has open is in no other's times."""
    gpus = torch.cuda.device_count()
    ways = ["cuda_ipc", "gpu", "gpu, in place", "empty_gpu", *(["nixl"] if args.nixl and importlib.util.find_spec("nixl") else [])]
    for mib in args.sizes:
        for tensors in args.tensors:
            made = [(way, way.split(",")[0], [on_a_gpu(0.05) for _ in range(3)]) for way in ways]
            if gpus > 1:
                source, rest = on_a_gpu(0.05), on_a_gpu(0.95 - 0.15 * len(ways))  # the first GPU has no room then
                ray.get([a.gpu_of_ray.remote() for a in (source, rest)])
                made.append(("gpu, readers on the other GPU", "gpu", [source, on_a_gpu(0.05), on_a_gpu(0.05)]))
            for name, _, actors in made:
                where = ray.get([a.gpu_of_ray.remote() for a in actors])
                assert (len({*where}) == 1) == ("other" not in name), f"{name}: on the GPUs {where}"
                ray.get(actors[0].prepare.remote(mib, tensors, "in place" in name))
            compare(f"{mib} MiB, tensors: {tensors}", made, args.rounds, float(tensors))
            for actor in {a for *_, actors in made for a in actors} | ({rest} if gpus > 1 else set()):
                ray.kill(actor)
            while ray.available_resources().get("GPU", 0) < gpus - 0.01:  # a sum of shares
                time.sleep(0.1)
    if args.weights:
        print_weights(args.weights)
    print_kills(args.rounds, "gpu", 1, lambda: on_a_gpu(0.05))


def on_a_gpu(share):
    return ray.remote(num_cpus=0, num_gpus=round(share, 2))(Actor).remote()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", default=[64, 256, 1024], type=lambda s: [*map(int, s.split(","))], help="MiB")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--tensors", default=[1, 443], type=lambda s: [*map(int, s.split(","))])
    parser.add_argument("--weights", type=int, default=0, help="MiB")
    parser.add_argument("--no-nixl", dest="nixl", action="store_false")
    args = parser.parse_args()
    if args.gpu and not (torch and torch.cuda.is_available()):
        sys.exit("ray_objects.py: --gpu needs a PyTorch with CUDA, and a GPU")
    gpus = torch.cuda.device_count() if args.gpu else 0
    pools = "".join(f"[pool gpu{i}]\nkind=vmm\ndevice={i}\nsize={6 * max(args.sizes) + args.weights + 1024}M\n" for i in range(gpus))
    daemon = Daemon(f"[pool host]\nkind=host\nsize={3 * max(args.sizes)}M\n{pools}")
    os.environ["GPUSHM_SOCKET"] = daemon.socket
    options = {"include_dashboard": False, "log_to_driver": False}
    options |= {"object_store_memory": max(*args.sizes, args.weights) * 3 << 19, "num_gpus": gpus}
    ray.init(address="local", num_cpus=8, **options)
    (on_gpu if args.gpu else on_cpu)(args)
    ray.shutdown()
    daemon.remove()


def print_weights(mib):
    stored = ray.put({f"{i}": np.ones(mib << 13, "f4") for i in range(32)})
    for way, reference in ("ray.get() in each", [stored]), ("gpushm.ray.weights()", None):
        actors = [on_a_gpu(0.05) for _ in range(8)]
        ray.get([a.prepare.remote(1, 1) for a in actors])
        free, _ = torch.cuda.mem_get_info()
        first = ray.get(actors[0].weights.remote(mib, reference))
        others = ray.get([a.weights.remote(mib, reference) for a in actors[1:]])
        copies = (free - torch.cuda.mem_get_info()[0]) / (mib << 20)
        print(f"| weights of {mib} MiB | {way} | {first:.2f} s | {max(others) * 1e3:.0f} ms | {copies:.2f} |", flush=True)
        for actor in actors:
            ray.kill(actor)


def print_kills(rounds, way, tensors, new_actor):
    times = []
    for _ in range(rounds):
        actors = source, old, new = [new_actor() for _ in range(3)]
        pid, *_ = ray.get([a.prepare.remote(64, tensors) for a in actors])
        ref = getattr(source, way).remote()
        ray.get(old.read.remote(ref))
        ray.get(new.read.remote(getattr(source, way).remote()))  # it has imported what it needs
        start = time.perf_counter()
        os.kill(pid, signal.SIGKILL)
        ray.get(new.read.remote(ref))
        times.append(time.perf_counter() - start)
        for actor in (old, new):
            ray.kill(actor)
    print(f"from the kill of the source to a new reader's tensor: {statistics.median(times) * 1e3:.1f} ms")


if __name__ == "__main__":
    main()
