# SPDX-License-Identifier: MIT
"""Streams between two processes, in the order of CUDA streams of PyTorch, CuPy or Numba: the work on both sides is
slow, and no side waits for it on the host. Also in graphs that PyTorch and CuPy capture.

$GPUSHM_LIBRARY is one of "torch", "cupy", "numba"; without it all that are here are tested.
"""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
import multiprocessing as mp
import operator
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest
from gpushm import _core

HERE = [name for name in ("torch", "cupy", "numba") if importlib.util.find_spec(name)]
LIBRARIES = [name for name in HERE if os.environ.get("GPUSHM_LIBRARY", name) == name]
POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "pinned") and not p.failed and p.device in (0, None)]
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

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.torch.zeros(shape, dtype=getattr(self.torch, dtype), device="cuda")

    def sleep(self) -> None:
        self.torch.cuda._sleep(BUSY)

    def run(self, work: Callable[[], object]) -> None:
        with self.torch.cuda.stream(self.stream):
            work()

    def capture(self, work: Callable[[], object]) -> Any:
        graph = self.torch.cuda.CUDAGraph(keep_graph=True)
        with self.torch.cuda.graph(graph, stream=self.stream):
            work()
        graph.instantiate()
        return graph

    def launch(self, graph: Any) -> None:
        self.run(graph.replay)


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

    def zeros(self, shape: tuple[int, ...], dtype: str) -> Any:
        return self.cupy.zeros(shape, dtype)

    def sleep(self) -> None:
        self.busy((1,), (1,), (BUSY,))

    def run(self, work: Callable[[], object]) -> None:
        with self.stream:
            work()

    def capture(self, work: Callable[[], object]) -> int:
        """Not Stream.end_capture(), whose Graph has destroyed what was captured."""
        runtime = self.cupy.cuda.runtime
        self.stream.begin_capture()
        self.run(work)
        return int(runtime.graphInstantiate(runtime.streamEndCapture(self.stream.ptr)))

    def launch(self, graph: int) -> None:
        self.cupy.cuda.runtime.graphLaunch(graph, self.stream.ptr)


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
def test_a_frame_is_read_and_overwritten_in_order(library: str, pool: str) -> None:
    warnings.simplefilter("ignore", gpushm.errors.ReadOnlyWarning)
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
def test_a_graphs_replay_comes_after_its_frame() -> None:
    import torch

    warnings.simplefilter("ignore", gpushm.errors.ReadOnlyWarning)
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


class Move:
    """A kernel that copies words between addresses which it finds in the GPU's memory, where a graph's nodes have
    written them: (the address of that address, an offset to add).
    """

    PTX = b"""
        .version 7.0
        .target sm_70
        .address_size 64
        .visible .entry move(.param .u64 source, .param .u64 source_offset,
                             .param .u64 to, .param .u64 to_offset, .param .u32 n)
        {
            .reg .u64 %from, %to, %offset;
            .reg .u32 %i, %block, %size, %n, %word;
            .reg .pred %p;
            ld.param.u32 %n, [n];
            mov.u32 %i, %tid.x;
            mov.u32 %block, %ctaid.x;
            mov.u32 %size, %ntid.x;
            mad.lo.u32 %i, %block, %size, %i;
            setp.ge.u32 %p, %i, %n;
            @%p bra done;
            ld.param.u64 %from, [source];
            ld.global.u64 %from, [%from];
            ld.param.u64 %offset, [source_offset];
            add.u64 %from, %from, %offset;
            mad.wide.u32 %from, %i, 4, %from;
            ld.param.u64 %to, [to];
            ld.global.u64 %to, [%to];
            ld.param.u64 %offset, [to_offset];
            add.u64 %to, %to, %offset;
            mad.wide.u32 %to, %i, 4, %to;
            ld.global.u32 %word, [%from];
            st.global.u32 [%to], %word;
        done:
            ret;
        }
    """

    def __init__(self) -> None:
        """In the thread's context."""
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuLaunchKernel.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
        module, self.function = ctypes.c_void_p(), ctypes.c_void_p()
        assert self.cuda.cuModuleLoadData(ctypes.byref(module), self.PTX) == 0
        assert self.cuda.cuModuleGetFunction(ctypes.byref(self.function), module, b"move") == 0

    def __call__(self, stream: int, source: tuple[int, int], to: tuple[int, int], n: int) -> None:
        arguments = (*map(ctypes.c_uint64, (*source, *to)), ctypes.c_uint32(n))
        places = (ctypes.c_void_p * 5)(*map(ctypes.addressof, arguments))
        assert self.cuda.cuLaunchKernel(self.function, n // 256 + 1, 1, 1, 256, 1, 1, 0, stream, places, None) == 0


def address(array: Any) -> int:
    return int(array.__cuda_array_interface__["data"][0])


@pytest.mark.parametrize("library", [name for name in LIBRARIES if name != "numba"])
def test_a_relaunched_graph_has_the_next_frame(library: str, kernels: None) -> None:
    """One graph reads frames of another process and fills those of a second stream."""
    if library == "torch" and not hasattr(importlib.import_module("torch").cuda.CUDAGraph, "raw_cuda_graph_exec"):
        pytest.skip("this PyTorch does not give out its instantiated graphs")
    warnings.simplefilter("ignore", gpushm.errors.ReadOnlyWarning)
    pool = next(p.name for p in gpushm.pools() if p.kind == "vmm")
    work, after = MAKE[library](), MAKE[library]()
    x, words = work.zeros(SHAPE, "int32"), work.zeros((3,), "int64")
    n, stream = SHAPE[0] * SHAPE[1], _core._stream(work.stream)
    words[2] = address(x)
    places = [address(words) + 8 * i for i in range(3)]  # of the addresses: of a frame, of a frame to fill, of x
    move = Move()
    frames: list[gpushm.types.GraphFrame] = []

    def compute() -> None:
        work.sleep()
        operator.iadd(operator.imul(x, 2), 1)

    def captured() -> None:
        taken, filled = reader.graph(work.stream, places[0]), out.graph(work.stream, places[1])
        move(stream, (places[0], taken.offset("x")), (places[2], 0), n)
        compute()
        move(stream, (places[2], 0), (places[1], filled.offset("y")), n)
        taken.release(work.stream)
        filled.release(work.stream)
        frames.extend((taken, filled))

    # All kernels are loaded before they are captured.
    assert move.cuda.cuCtxSynchronize() == 0
    work.run(compute)
    move(stream, (places[2], 0), (places[2], 0), n)
    assert move.cuda.cuCtxSynchronize() == 0
    producer = mp.get_context("spawn").Process(target=produce, args=(library, pool, os.environ["GPUSHM_SOCKET"]))
    producer.start()
    busy, copies = 0, []
    with (
        gpushm.stream("t", {"y": (SHAPE, "int32")}, slots=3, pool=pool) as out,
        gpushm.follow("t", "every", stream=after.stream, timeout=60) as results,
        gpushm.follow("s", "every", timeout=60) as reader,
    ):
        graph = work.capture(captured)
        with frames[0] as taken, frames[1] as filled:
            for i in range(1, FRAMES + 1):
                with taken.next(graph) as f, filled.next(graph, timeout=60) as o:
                    assert f.seq == o.seq == i
                    work.launch(graph)
                busy += work.is_busy()
                with next(results) as result:
                    copies.append(after.copy(result["y"]))
            with pytest.raises(gpushm.errors.StreamEnded):
                taken.next(graph)
    producer.join(60)
    assert producer.exitcode == 0
    for i, copy in enumerate(copies, 1):
        assert (after.values(copy) == 2 * i + 1).all(), i
    assert busy > FRAMES // 4, f"the host waited for its GPU: it was busy {busy} times of {FRAMES}"


@pytest.mark.skipif("torch" not in LIBRARIES, reason="no PyTorch")
def test_a_graph_that_pytorch_destroyed_is_refused(kernels: None) -> None:
    import torch

    pool = next(p.name for p in gpushm.pools() if p.kind == "vmm")
    x, st = torch.zeros(1, device="cuda"), torch.cuda.Stream()
    x += 1
    torch.cuda.synchronize()
    with gpushm.stream("s", {"x": (1, "int32")}, pool=pool) as s:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, stream=st):
            g = s.graph(st)
            x += 1
            g.release(st)
        with pytest.raises(gpushm.errors.BadArgument, match="keep_graph=True"):
            g.next(graph)


def test_the_film_is_whole_on_a_gpu(tmp_path: Path) -> None:
    film = Path(__file__).resolve().parents[3] / "client/python/examples/video.py"
    done = subprocess.run([sys.executable, film, tmp_path, "48"], capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 48 and done.stdout.count("the ball is in rows") == 48
