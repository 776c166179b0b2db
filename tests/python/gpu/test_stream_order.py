# SPDX-License-Identifier: MIT
"""Streams between two processes, in the order of CUDA streams of PyTorch, CuPy or Numba: the work on both sides is
slow, and no side waits for it on the host.

$GPUSHM_LIBRARY is one of "torch", "cupy", "numba"; without it all that are here are tested.
"""

from __future__ import annotations

import importlib.util
import multiprocessing as mp
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest

HERE = [name for name in ("torch", "cupy", "numba") if importlib.util.find_spec(name)]
LIBRARIES = [name for name in HERE if os.environ.get("GPUSHM_LIBRARY", name) == name]
POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "pinned") and not p.failed]
SHAPE, FRAMES = (1000, 1000), 40
BUSY = 20_000_000  # GPU cycles: some 10 ms


class Torch:
    """Work on a stream of PyTorch's."""

    def __init__(self) -> None:
        import torch

        self.torch, self.stream = torch, torch.cuda.Stream()

    def fill(self, array: gpushm.Array, value: int) -> None:
        with self.torch.cuda.stream(self.stream):
            self.torch.cuda._sleep(BUSY)
            self.torch.from_dlpack(array).fill_(value)

    def copy(self, array: gpushm.Array) -> Any:
        with self.torch.cuda.stream(self.stream):
            self.torch.cuda._sleep(BUSY)
            return self.torch.from_dlpack(array).clone()

    def is_busy(self) -> bool:
        return not self.stream.query()

    def values(self, copy: Any) -> Any:
        self.stream.synchronize()
        return copy.cpu().numpy()


class Cupy:
    """Work on a stream of CuPy's."""

    def __init__(self) -> None:
        import cupy

        self.cupy, self.stream = cupy, cupy.cuda.Stream(non_blocking=True)
        code = 'extern "C" __global__ void busy(long long n) { long long t = clock64(); while (clock64() - t < n); }'
        self.busy = cupy.RawKernel(code, "busy")

    def fill(self, array: gpushm.Array, value: int) -> None:
        with self.stream:
            self.busy((1,), (1,), (BUSY,))
            self.cupy.from_dlpack(array).fill(value)

    def copy(self, array: gpushm.Array) -> Any:
        with self.stream:
            self.busy((1,), (1,), (BUSY,))
            return self.cupy.from_dlpack(array).copy()

    def is_busy(self) -> bool:
        return not self.stream.done

    def values(self, copy: Any) -> Any:
        self.stream.synchronize()
        return self.cupy.asnumpy(copy)


class Numba:
    """Work on a stream of Numba's."""

    def __init__(self) -> None:
        import libraries  # noqa: F401  it gives NumPy the aliases that Numba's typing uses
        from numba import cuda

        @cuda.jit
        def move(to: Any, source: Any, value: int, loops: int) -> None:
            x = 0.0
            for i in range(loops):
                x = x * 0.5 + i
            at = cuda.grid(1)
            if at < to.size:
                one = value if source.size == 0 else source[at]
                to[at] = one if x >= 0 else -1

        self.cuda, self.stream, self.move = cuda, cuda.stream(), move
        self.none = cuda.device_array(0, np.int32)

    def _run(self, to: Any, source: Any, value: int) -> None:
        self.move[to.size // 256 + 1, 256, self.stream](to, source, value, 20_000)

    def fill(self, array: gpushm.Array, value: int) -> None:
        self._run(self.cuda.as_cuda_array(array.ravel(), sync=False), self.none, value)

    def copy(self, array: gpushm.Array) -> Any:
        to = self.cuda.device_array(array.size, np.int32, stream=self.stream)
        self._run(to, self.cuda.as_cuda_array(array.ravel(), sync=False), 0)
        return to

    def is_busy(self) -> bool:
        event = self.cuda.event(timing=False)
        event.record(self.stream)
        return not event.query()

    def values(self, copy: Any) -> Any:
        self.stream.synchronize()
        return copy.copy_to_host()


MAKE: dict[str, type[Any]] = {"torch": Torch, "cupy": Cupy, "numba": Numba}


def produce(library: str, pool: str, socket: str) -> None:
    """Fills frames on a stream, and never waits for it."""
    os.environ["GPUSHM_SOCKET"] = socket
    work = MAKE[library]()
    busy = 0
    with gpushm.stream("s", {"x": (SHAPE, "int32")}, slots=3, pool=pool) as s:
        while not s.stats().readers:
            pass
        for i in range(1, FRAMES + 1):
            with s.frame(stream=work.stream, timeout=60) as f:
                work.fill(f["x"], i)
            busy += work.is_busy()
        work.stream.synchronize()
    assert busy > FRAMES // 4, f"the host waited for its GPU: it was busy {busy} times of {FRAMES}"


@pytest.mark.parametrize("pool", POOLS)
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_frame_is_read_or_overwritten_too_early(library: str, pool: str) -> None:
    warnings.simplefilter("ignore", gpushm.ReadOnlyWarning)
    if pool == "pinned" and library != "numba":
        pytest.skip("PyTorch and CuPy know no pinned memory in DLPack")
    work = MAKE[library]()
    producer = mp.get_context("spawn").Process(target=produce, args=(library, pool, os.environ["GPUSHM_SOCKET"]))
    producer.start()
    busy, copies = 0, []
    with gpushm.follow("s", "every", stream=work.stream, timeout=60) as reader:
        for f in reader:
            copies.append(work.copy(f["x"]))
            busy += work.is_busy()
    producer.join(60)
    assert producer.exitcode == 0 and len(copies) == FRAMES
    for i, copy in enumerate(copies, 1):
        assert (work.values(copy) == i).all(), i
    assert busy > FRAMES // 4, f"the host waited for its GPU: it was busy {busy} times of {FRAMES}"


@pytest.mark.skipif("torch" not in LIBRARIES, reason="no PyTorch")
def test_a_graphs_replay_comes_before_its_frame() -> None:
    import torch

    warnings.simplefilter("ignore", gpushm.ReadOnlyWarning)
    pool = next(p.name for p in gpushm.pools() if p.kind == "vmm")
    producer = mp.get_context("spawn").Process(target=produce, args=("torch", pool, os.environ["GPUSHM_SOCKET"]))
    producer.start()
    work, given = Torch(), torch.zeros(SHAPE, dtype=torch.int32, device="cuda")
    found = torch.zeros_like(given)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.stream(work.stream):
        found.copy_(given * 2 + 1)
    work.stream.synchronize()
    with torch.cuda.graph(graph, stream=work.stream):
        found.copy_(given * 2 + 1)
    results = []
    with (
        gpushm.follow("s", "every", stream=work.stream, timeout=60) as reader,
        torch.cuda.stream(work.stream),
    ):
        for f in reader:
            given.copy_(torch.from_dlpack(f["x"]))
            graph.replay()
            results.append(found.clone())
    producer.join(60)
    work.stream.synchronize()
    assert producer.exitcode == 0
    assert [int(r[0, 0]) for r in results] == [2 * i + 1 for i in range(1, FRAMES + 1)]
    assert all((r == r[0, 0]).all() for r in results)


def test_the_film_is_wrong_on_a_gpu(tmp_path: Path) -> None:
    film = Path(__file__).resolve().parents[3] / "client/python/examples/video.py"
    done = subprocess.run([sys.executable, film, tmp_path, "48"], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 48 and done.stdout.count("the ball is in rows") == 48
