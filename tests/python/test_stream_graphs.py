# SPDX-License-Identifier: MIT
"""Frames in captured CUDA graphs, over the driver that is here. Work of the graphs is a function of the host's, which
sees the addresses that a graph's nodes wrote; what kernels see is tests/python/gpu/test_stream_order.py's.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import gpushm
import pytest

KINDS = {p.kind: p.name for p in gpushm.pools() if not p.failed and p.device in (0, None)}
pytestmark = pytest.mark.skipif("vmm" not in KINDS, reason="no GPU")
ARRAYS = {"x": ((4, 6), "float32"), "n": ((), "int64")}
HostFunction = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
Pointer = ctypes.c_void_p


class Driver:
    """The driver's calls, each of which must succeed; those that make something return it."""

    def __init__(self) -> None:
        self.cuda = ctypes.CDLL("libcuda.so.1")
        self.cuda.cuLaunchHostFunc.argtypes = (Pointer, HostFunction, Pointer)
        self.is_fake = hasattr(self.cuda, "fakecuda_handed_out")

    def call(self, name: str, *arguments: Any) -> None:
        result = getattr(self.cuda, name)(*arguments)
        assert result == 0, (name, result)

    def make(self, name: str, *arguments: Any) -> int:
        made = Pointer()
        self.call(name, ctypes.byref(made), *arguments)
        return made.value or 0

    def is_busy(self, stream: int) -> bool:
        return bool(self.cuda.cuStreamQuery(Pointer(stream)) != 0)


class Stage:
    """A graph: what is captured in its with block. `where` is a word of the host's memory that the GPU can write."""

    def __init__(self, driver: Driver) -> None:
        self.driver, self.exec, self.graph = driver, 0, 0
        self.stream = driver.make("cuStreamCreate", 1)
        self.functions: list[Any] = []
        self.where = driver.make("cuMemHostAlloc", ctypes.c_size_t(8), 3)

    def __enter__(self) -> Stage:
        self.driver.call("cuStreamBeginCapture_v2", Pointer(self.stream), 1)
        return self

    def __exit__(self, *raised: object) -> None:
        graph = Pointer()
        self.driver.call("cuStreamEndCapture", Pointer(self.stream), ctypes.byref(graph))
        self.graph = graph.value or 0
        self.exec = self.driver.make("cuGraphInstantiateWithFlags", Pointer(self.graph), ctypes.c_ulonglong(0))

    def work(self, function: Callable[[int], object]) -> None:
        """Queues a call of the function with the address that the graph has found."""
        self.functions.append(HostFunction(lambda _: function(ctypes.c_uint64.from_address(self.where).value)))
        self.driver.call("cuLaunchHostFunc", self.stream, self.functions[-1], None)

    def launch(self) -> None:
        self.driver.call("cuGraphLaunch", Pointer(self.exec), Pointer(self.stream))

    def synchronize(self) -> None:
        self.driver.call("cuStreamSynchronize", Pointer(self.stream))

    def end(self) -> None:
        self.synchronize()
        if self.graph:
            self.driver.call("cuGraphExecDestroy", Pointer(self.exec))
            self.driver.call("cuGraphDestroy", Pointer(self.graph))
        self.driver.call("cuStreamDestroy_v2", Pointer(self.stream))
        self.driver.call("cuMemFreeHost", Pointer(self.where))


@pytest.fixture(scope="module")
def driver(warmed_up: None) -> Iterator[Driver]:
    """With the GPU's context, and with what a driver makes for its first graph."""
    driver = Driver()
    context = driver.make("cuDevicePrimaryCtxRetain", 0)
    driver.call("cuCtxPushCurrent_v2", Pointer(context))
    first = Stage(driver)
    with first:
        first.work(lambda _: None)
    first.launch()
    first.end()
    yield driver
    driver.make("cuCtxPopCurrent_v2")
    driver.call("cuDevicePrimaryCtxRelease_v2", 0)


@pytest.fixture
def stages(driver: Driver) -> Iterator[Callable[[], Stage]]:
    """Makes stages, which end with the test."""
    made: list[Stage] = []

    def make() -> Stage:
        made.append(Stage(driver))
        return made[-1]

    yield make
    for stage in made:
        stage.end()


@pytest.fixture
def s(stages: Callable[[], Stage]) -> Iterator[gpushm.types.Stream]:
    with gpushm.stream("s", ARRAYS, slots=3, pool=KINDS["vmm"]) as stream:
        yield stream


@pytest.fixture
def reader(s: gpushm.types.Stream) -> Iterator[gpushm.types.Reader]:
    with gpushm.follow("s", "every", timeout=30) as reader:
        yield reader


def capture(
    stage: Stage, side: gpushm.types.Stream | gpushm.types.Reader, work: Callable[[int], object]
) -> gpushm.types.GraphFrame:
    with stage:
        g = side.graph(stage.stream, stage.where)
        stage.work(work)
        g.release(stage.stream)
    return g


def nothing(_: int) -> None:
    pass


def test_each_launch_of_a_graph_has_the_next_frame(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage], driver: Driver
) -> None:
    filled: list[int] = []
    read: list[int] = []
    produces, reads = stages(), stages()
    # The fake driver's device memory is the CPU's, too.
    number = ctypes.c_int64.from_address if driver.is_fake else lambda address: ctypes.c_int64(address)

    def fill(address: int) -> None:
        number(address + offset).value = 7 * len(filled)
        filled.append(address)

    def check(address: int) -> None:
        assert not driver.is_fake or number(address + offset).value == 7 * len(read)
        read.append(address)

    put, get = capture(produces, s, fill), capture(reads, reader, check)
    offset = put.offset("n")
    assert offset == get.offset("n") == (s.buffer["n"].device_ptr or 0) - (s.buffer["x"].device_ptr or 0)
    assert put.offset("x") == 0
    slots = []
    for seq in range(1, 21):
        with put.next(produces.exec, timeout=30) as f:
            assert f.seq == seq and f.time is None and not f.closed
            f.meta = {"i": seq}
            f.resize("x", seq)
            produces.launch()
        with get.next(reads.exec) as f:
            reads.launch()
            assert f.seq == seq and f.meta == {"i": seq} and f["x"].shape == (seq,)
            slots.append(f.slot)
        assert f.closed
    reads.synchronize()
    bytes_ = s.buffer.nbytes // 3
    for side, found in ((s, filled), (reader, read)):
        base = side.buffer["x"].device_ptr or 0
        assert [(address - base) // bytes_ for address in found] == slots
    assert set(slots) == {0, 1, 2} and reader.stats().held == 0
    s.close()
    with pytest.raises(gpushm.errors.StreamEnded):
        get.next(reads.exec)


def test_a_graph_waits_for_its_frame(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage], driver: Driver
) -> None:
    ran: list[int] = []
    gate, one, reads = threading.Event(), stages(), stages()
    get = capture(reads, reader, ran.append)
    f = s.frame(stream=one.stream)
    one.work(lambda _: gate.wait(60))
    f.publish()
    with get.next(reads.exec):
        reads.launch()
    assert driver.is_busy(reads.stream) and ran == []
    gate.set()
    reads.synchronize()
    assert len(ran) == 1


def test_a_frame_whose_graph_is_not_launched_frees_its_slot(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage]
) -> None:
    produces, reads = stages(), stages()
    put, get = capture(produces, s, nothing), capture(reads, reader, nothing)

    def fails() -> None:
        with get.next(reads.exec):
            raise ZeroDivisionError

    def forgets() -> None:
        get.next(reads.exec)
        gc.collect()

    def takes_another() -> None:
        f = get.next(reads.exec)
        with pytest.raises(gpushm.errors.Timeout):
            reader.next(timeout=0)
        assert f.closed

    def gives_back() -> None:
        get.next(reads.exec).release(None)

    for turn in range(3):
        for way in (fails, forgets, takes_another, gives_back):
            with pytest.raises(ZeroDivisionError), put.next(produces.exec, timeout=30) as f:
                raise ZeroDivisionError
            assert f.closed
            with put.next(produces.exec, timeout=30) as f:
                produces.launch()
            if way is fails:
                with pytest.raises(ZeroDivisionError):
                    way()
            else:
                way()
            assert reader.stats().held == 0 and s.stats().newest == f.seq, (turn, way)
    # Also one that was launched is the host's to end.
    with put.next(produces.exec, timeout=30):
        produces.launch()
    with pytest.raises(ZeroDivisionError), get.next(reads.exec):
        reads.launch()
        raise ZeroDivisionError
    assert reader.stats().held == 0
    assert s.stats().stalls == 0


def test_closing_a_side_closes_its_graph_frames(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage]
) -> None:
    produces, reads = stages(), stages()
    put, get = capture(produces, s, nothing), capture(reads, reader, nothing)
    with put.next(produces.exec):
        produces.launch()
    f, filling = get.next(reads.exec), put.next(produces.exec)
    reader.close()
    s.close()
    assert f.closed and filling.closed
    for g, stage in ((put, produces), (get, reads)):
        for use in (
            lambda g=g, stage=stage: g.next(stage.exec),
            lambda g=g: g.offset("x"),
            lambda g=g: g.release(7),
            lambda: s.graph(7),
        ):
            with pytest.raises(ValueError, match="the stream is closed"):
                use()
        g.close()


def test_a_graph_that_is_captured_wrongly_is_refused(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage]
) -> None:
    stage, other = stages(), stages()
    for side in (s, reader):
        with pytest.raises(gpushm.errors.BadArgument, match="does not capture"):
            side.graph(stage.stream)
        with pytest.raises(TypeError, match="a stream is"):
            side.graph("stream")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="missing"):
            side.graph()  # type: ignore[call-arg]
        with pytest.raises(OverflowError):
            side.graph(stage.stream, -8)
    with stage:
        g = s.graph(stage.stream)
        with pytest.raises(KeyError, match="y"):
            g.offset("y")
        with pytest.raises(gpushm.errors.BadArgument, match="does not capture"):
            g.release(other.stream)
        with pytest.raises(gpushm.errors.StateError, match=r"release\(\)"):
            g.next(1)
        g.release(stage.stream)
        with pytest.raises(gpushm.errors.StateError, match="already"):
            g.release(stage.stream)
    for wrong in (None, "7", 7.0, object()):
        with pytest.raises(TypeError, match="instantiated graph"):
            g.next(wrong)  # type: ignore[arg-type]
    with pytest.raises(gpushm.errors.BadArgument, match="is NULL"):
        g.next(0)
    # No slot was taken.
    with g.next(stage.exec):
        stage.launch()
    assert s.stats().newest == 1 and "'s'" in repr(g)
    with g as same:
        assert same is g and not g.closed
    assert g.closed and "closed" in repr(g)
    g.close()
    with pytest.raises(ValueError, match="graph frame is closed"):
        g.next(stage.exec)


def test_memory_of_the_host_is_refused_in_a_graph(stages: Callable[[], Stage], host_pool: str) -> None:
    stage = stages()
    with (
        gpushm.stream("s", ARRAYS, pool=host_pool) as s,
        stage,
        pytest.raises(gpushm.errors.NotSupported, match="host memory"),
    ):
        s.graph(stage.stream)


def test_a_reader_that_has_not_joined_is_refused_in_a_graph(stages: Callable[[], Stage]) -> None:
    async def main() -> None:
        with gpushm.follow("later") as reader, pytest.raises(ValueError, match="not joined"):
            reader.graph(1)

    asyncio.run(main())


def test_a_graph_frame_has_the_timeout_and_limit_of_its_reader(
    s: gpushm.types.Stream, stages: Callable[[], Stage]
) -> None:
    stage = stages()
    with gpushm.follow("s", "every", timeout=0.01) as reader:
        g = capture(stage, reader, nothing)
        with pytest.raises(gpushm.errors.Timeout):
            g.next(stage.exec)
        with pytest.raises(gpushm.errors.Timeout):
            g.next(stage.exec, timeout=0)
        for _ in range(2):
            s.frame().publish()
        with g.next(stage.exec):
            with pytest.raises(gpushm.errors.LimitReached, match="max_held"):
                g.next(stage.exec)
            stage.launch()


def test_a_graph_frame_with_a_waiting_thread_refuses_to_close(
    s: gpushm.types.Stream, reader: gpushm.types.Reader, stages: Callable[[], Stage]
) -> None:
    stage = stages()
    g = capture(stage, reader, nothing)
    found: list[gpushm.types.Frame] = []

    def wait() -> None:
        while not found:
            with suppress(gpushm.errors.InUse):
                found.append(g.next(stage.exec))

    thread = threading.Thread(target=wait)
    thread.start()
    # Until the other thread waits, which is an InUse here.
    with pytest.raises(gpushm.errors.InUse, match="another thread"):
        while True:
            with pytest.raises(gpushm.errors.Timeout):
                g.next(stage.exec, timeout=0)
    with pytest.raises(gpushm.errors.InUse, match="can't be closed"):
        g.close()
    with pytest.raises(gpushm.errors.InUse, match="can't be closed"):
        reader.close()
    s.frame().publish()
    thread.join()
    with found.pop() as f:
        stage.launch()
    assert f.seq == 1 and f.closed


# ---- graphs of libraries ----


class TorchGraph:
    """As torch.cuda.CUDAGraph has them: 0 stands for what is not there."""

    def __init__(self, graph: int, made: int) -> None:
        self.graph, self.made = graph, made

    def raw_cuda_graph(self) -> int:
        if not self.graph:
            raise RuntimeError("You cannot access it unless CUDAGraph was initialized with keep_graph=true\nmore")
        return self.graph

    def raw_cuda_graph_exec(self) -> int:
        if not self.made:
            raise RuntimeError("You cannot access it until instantiate() has been called")
        return self.made


class Binding:
    """A CUgraphExec of cuda.bindings."""

    def __init__(self, made: int) -> None:
        self.made = made

    def __int__(self) -> int:
        return self.made


class CudaCoreGraph:
    """A Graph of cuda.core."""

    def __init__(self, made: int) -> None:
        self.handle = Binding(made)


def test_a_librarys_graph_is_taken(s: gpushm.types.Stream, stages: Callable[[], Stage]) -> None:
    stage = stages()
    g = capture(stage, s, nothing)
    takes: list[Any] = [TorchGraph(stage.graph, stage.exec), Binding(stage.exec), CudaCoreGraph(stage.exec)]
    for graph in takes:
        with g.next(graph):
            stage.launch()
    with pytest.raises(gpushm.errors.BadArgument, match="keep_graph=True") as e:
        g.next(TorchGraph(0, stage.exec))
    assert "more" not in str(e.value) and isinstance(e.value.__cause__, RuntimeError)
    with pytest.raises(gpushm.errors.BadArgument, match=r"until instantiate\(\)"):
        g.next(TorchGraph(stage.graph, 0))
    assert s.stats().newest == 3
