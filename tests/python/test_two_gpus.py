# SPDX-License-Identifier: MIT
"""What two GPUs mean for a program that uses no other library.

"make check" runs it over two GPUs of the fake driver.
"""

from __future__ import annotations

import ctypes
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import gpushm
import pytest
from copies import to_device
from gpus import GPU_POOLS, GPUS, PAIRS, in_thread, working_on
from tensors import Tensor

if len(GPUS) < 2:
    pytest.skip("one GPU, or none: these tests need two", allow_module_level=True)
VALUES = list(range(10))
PINNED = [p.name for p in gpushm.pools() if p.kind == "pinned" and not p.failed]


def filled(name: str, pool: str, **options: Any) -> gpushm.Array:
    a = gpushm.create(name, 10, "int64", pool=pool, **options)
    a.copy_from_host(VALUES)
    return a


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_two_gpus_read_and_write_the_same_memory(pool: str, own: int, other: int) -> None:
    with filled("a", pool) as a:
        a.publish("shared")
        with gpushm.open("a", "r+", device=other) as there, gpushm.open("a", "r+", device=own) as here:
            assert (there.device, there.__dlpack_device__()) == (own, (2, other))
            assert (here.device, here.__dlpack_device__()) == (own, (2, own))
            assert there.tolist() == VALUES
            there.copy_from_host(VALUES[::-1])
            assert here.tolist() == a.tolist() == VALUES[::-1]
            here.fill(3)
            assert there.tolist() == [3] * 10
        a.unlink()


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_each_thread_opens_for_its_own_current_gpu(pool: str, own: int, other: int) -> None:
    """Two threads at the same time, each on its GPU, open one buffer."""
    barrier = threading.Barrier(2)

    def on(device: int) -> tuple[int, int]:
        with working_on(device):
            barrier.wait()
            with gpushm.open("a", device="current") as a:
                assert a.tolist() == VALUES
                return a.__dlpack_device__()

    with filled("a", pool) as a:
        a.publish("shared")
        found: list[Any] = [None, None]

        def second() -> None:
            found[1] = on(other)

        thread = threading.Thread(target=second)
        thread.start()
        found[0] = on(own)
        thread.join()
        assert found == [(2, own), (2, other)]
        a.unlink()


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_another_gpus_buffer_comes_with_a_warning(
    pool: str, own: int, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpushm._libraries._said", set())

    def opened(device: Any) -> list[str]:
        with working_on(other), warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            gpushm.open("a", device=device).close()
        return [str(w.message) for w in found if w.category is gpushm.errors.DeviceWarning]

    with filled("a", pool) as a:
        a.publish("shared")
        assert in_thread(lambda: opened("current")) == in_thread(lambda: opened(own)) == []
        (text,) = in_thread(lambda: opened(None))
        assert f"on GPU {own}" in text and f"GPU {other}" in text and 'device="current"' in text
        a.unlink()


@pytest.mark.parametrize("to", GPU_POOLS)
@pytest.mark.parametrize("source", GPU_POOLS)
def test_a_copy_between_gpus_has_the_same_contents(source: str, to: str) -> None:
    """From whichever GPU the thread works on; whole arrays, views, and many at once."""
    with filled("a", source) as a, gpushm.create("b", 10, "int64", pool=to) as b:
        for device in GPUS:
            with working_on(device):
                b.fill(0)
                b.copy_to_device(a)
                assert b.tolist() == VALUES
                b[::2] = a[5:]
                assert b.tolist() == [5, 1, 6, 3, 7, 5, 8, 7, 9, 9]
                with to_device(a, pool=to) as c:
                    assert c.device == GPU_POOLS[to] and c.tolist() == VALUES
        parts = {f"p{i}": a[i : i + 2] for i in range(8)}
        with gpushm.create_many(None, parts, pool=to) as many:
            assert [many[p].tolist() for p in many] == [[i, i + 1] for i in range(8)]
            a.fill(4)
            many.update(parts)
            assert all(many[p].tolist() == [4, 4] for p in many)
        del parts
        b.discard()
        a.discard()


def staged() -> int:
    """Calls that bring memory to the host; -1 where the driver does not count."""
    count = getattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_calls", None)
    return int(count(b"cuMemcpyDtoHAsync")) if count else -1


@pytest.mark.parametrize("to", [*GPU_POOLS, *PINNED])
@pytest.mark.parametrize("source", GPU_POOLS)
def test_a_large_copy_between_gpus_is_direct(source: str, to: str) -> None:
    """Also once the memory is sealed, and after it was away."""
    n = 1 << 18
    with gpushm.create("a", n, "int64", pool=source) as a, gpushm.create("b", n, "int64", pool=to) as b:
        a.copy_from_host(range(n))
        before = staged()
        for device in GPUS:
            with working_on(device):
                b.fill(0)
                b.copy_to_device(a)
                b[::2] = a[::2]
                assert staged() == before
                assert b[n - 3 :].tolist() == [n - 3, n - 2, n - 1]
                before = staged()
        a.publish()
        if gpushm.stat("a").kind != "mempool":
            a.suspend()
            a.resume(timeout=10)
        b.fill(0)
        b.copy_to_device(a)
        assert staged() == before
        assert b[n - 3 :].tolist() == [n - 3, n - 2, n - 1]
        b.discard()
    gpushm.unlink("a")


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_memory_that_is_mapped_for_a_peer_is_copied_directly(pool: str, own: int, other: int) -> None:
    """To and from memory of the GPU that has it."""
    n = 1 << 18
    with gpushm.create("a", n, "int64", pool=pool) as a, gpushm.create("b", n, "int64", pool=pool) as b:
        b.copy_from_host(range(n))
        a.publish("shared")
        before = staged()
        with gpushm.open("a", "r+", device=other) as there:
            there.copy_to_device(b)
            b.fill(0)
            b.copy_to_device(there)
        assert staged() == before
        assert b[n - 3 :].tolist() == a[n - 3 :].tolist() == [n - 3, n - 2, n - 1]
        b.discard()
        a.unlink()


class Torchs(Tensor):
    """As PyTorch's: exported only while the thread works on its GPU."""

    def __dlpack__(self, **words: Any) -> Any:
        current = gpushm._core._current_device()
        if current != self.device[1]:
            raise BufferError(f"Can't export tensors on a different CUDA device index. Current device: {current}.")
        return super().__dlpack__(**words)


@pytest.mark.parametrize("to", [*GPU_POOLS, "host"])
@pytest.mark.parametrize("source", GPU_POOLS)
def test_a_tensor_of_another_gpu_is_copied(source: str, to: str) -> None:
    with filled("a", source) as a:
        before, t = gpushm._core._current_device(), Torchs(a.device_ptr, (10,), "int64", device=(2, GPU_POOLS[source]))
        for device in GPUS:
            with working_on(device):
                with to_device(t, pool=to) as b:
                    assert b.tolist() == VALUES
                with gpushm.create_many(None, {"t": t}, pool=to) as many:
                    assert many["t"].tolist() == VALUES
                assert gpushm._core._current_device() == device
        assert gpushm._core._current_device() == before
        a.discard()


@pytest.mark.parametrize("state", ["sealed", "shared"])
@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_publish_on_another_gpu_keeps_what_it_wrote(pool: str, own: int, other: int, state: str) -> None:
    """A thread of the other GPU creates for it, writes and publishes; the memory's own GPU reads."""

    def make() -> None:
        with working_on(other), filled("a", pool, device="current") as a:
            assert a.__dlpack_device__() == (2, other)
            a.publish(state)

    in_thread(make)
    with working_on(own), gpushm.open("a", device="current") as a:
        assert a.__dlpack_device__() == (2, own) and a.tolist() == VALUES
    gpushm.unlink("a")


READER = """
import ctypes
import gpushm
cuda, context = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
assert cuda.cuInit(0) == 0 and cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), {device}) == 0
assert cuda.cuCtxPushCurrent_v2(context) == 0
with gpushm.open("a", device="current") as a:
    print(a.__dlpack_device__(), a.tolist())
cuda.cuCtxPopCurrent_v2(ctypes.byref(context))
cuda.cuDevicePrimaryCtxRelease_v2({device})
"""


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_process_on_another_gpu_reads_the_same_bytes(
    pool: str, own: int, other: int, in_child: Callable[[str], str]
) -> None:
    with filled("a", pool) as a:
        a.publish()
        assert in_child(READER.format(device=other)) == f"(2, {other}) {VALUES}\n"
    gpushm.unlink("a")


STREAM_READER = """
import gpushm
with gpushm.follow("s", "every", device={device}, timeout=30) as reader:
    print("ready", flush=True)
    print([(f["x"].__dlpack_device__(), f["x"].tolist()) for f in reader])
"""


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_stream_reaches_readers_on_both_gpus(pool: str, own: int, other: int) -> None:
    """Processes of their own; the producer works on its memory's GPU."""
    if pool in {p.name for p in gpushm.pools() if p.kind == "mempool"}:
        pytest.skip("a mempool can't have streams")
    frames = [[n, n + 1] for n in range(9)]
    with gpushm.stream("s", {"x": ((2,), "int64")}, slots=3, pool=pool) as stream:
        readers = {}
        for device in (own, other):
            words = [sys.executable, "-c", STREAM_READER.format(device=device)]
            readers[device] = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
            assert readers[device].stdout.readline() == "ready\n"
        with working_on(own):
            for values in frames:
                with stream.frame(timeout=30) as f:
                    f["x"].copy_from_host(values)
    for device, reader in readers.items():
        assert reader.communicate(timeout=60)[0] == f"{[((2, device), values) for values in frames]}\n"


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_cuda_stream_of_another_gpu_is_refused(pool: str, own: int, other: int) -> None:
    """Of a graph that runs there nobody would wait until it has done with the frames."""
    if pool in {p.name for p in gpushm.pools() if p.kind == "mempool"}:
        pytest.skip("a mempool can't have streams")
    cuda, made = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p()
    with gpushm.stream("s", {"x": ((2,), "int64")}, slots=3, pool=pool) as s, gpushm.follow("s", "every") as reader:
        with working_on(own), s.frame() as f:
            f["x"].copy_from_host([1, 2])
        with working_on(other):
            assert cuda.cuStreamCreate(ctypes.byref(made), 1) == 0
            refused = pytest.raises(gpushm.errors.BadArgument, match=f"is of GPU {other}.* mapped for GPU {own}")
            with refused:
                reader.next(stream=made.value, timeout=5)
            with refused:
                s.frame(stream=made.value)
            with working_on(own):
                f = s.frame()
            with refused:  # the frame is dropped
                f.publish(made.value)
            with working_on(own), s.frame() as f:
                f["x"].copy_from_host([5, 6])
            f = reader.next(timeout=5)
            assert f["x"].tolist() == [1, 2]
            with refused:  # it is released all the same
                f.release(made.value)
            assert cuda.cuStreamBeginCapture_v2(made, 1) == 0
            with pytest.raises(gpushm.errors.BadArgument, match=f"is of GPU {other}"):
                s.graph(made.value)
            graph = ctypes.c_void_p()
            assert cuda.cuStreamEndCapture(made, ctypes.byref(graph)) == 0
            assert cuda.cuGraphDestroy(graph) == 0
            with gpushm.follow("s", device=other) as there:
                there.next(stream=made.value, timeout=5).release(made.value)
            assert cuda.cuStreamDestroy_v2(made) == 0
        with working_on(own), s.frame() as f:
            f["x"].copy_from_host([3, 4])
        assert [reader.next(timeout=5)["x"].tolist() for _ in range(2)] == [[5, 6], [3, 4]]


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_both_gpus_let_go_of_memory_and_come_back(pool: str, own: int, other: int) -> None:
    if pool in {p.name for p in gpushm.pools() if p.kind == "mempool"}:
        pytest.skip("a mempool can't be suspended")
    with filled("a", pool) as a:
        a.publish()
        gpushm.make_twin("a", "host")
        with gpushm.open("a", device=other) as there:
            before = there.__cuda_array_interface__["data"][0]
            a.suspend()
            assert there.tolist() == VALUES  # the other's mapping stays
            there.suspend()
            assert gpushm.stat("a").away == 2
            gpushm.evict("a")
            there.resume(timeout=10)
            assert there.__cuda_array_interface__["data"][0] == before
            a.resume(timeout=10)
            assert (a.tolist(), there.tolist()) == (VALUES, VALUES)
    gpushm.unlink("a")


@pytest.mark.parametrize(("pool", "own", "other"), PAIRS)
def test_a_staged_copy_on_the_current_gpu_gives_no_warning(
    pool: str, own: int, other: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpushm._libraries._said", set())
    with filled("a", pool) as a, working_on(other), warnings.catch_warnings():
        a.publish("shared")
        warnings.simplefilter("error", gpushm.errors.DeviceWarning)
        handle = gpushm.numba.get_ipc_handle(a)
        there = handle.open_staged(other)
        assert gpushm.as_array(there.owner).device == other
        del there
        handle.close()
        a.unlink()


@pytest.mark.parametrize("device", GPUS)
def test_pinned_memory_is_mapped_for_each_gpu(device: int) -> None:
    if not PINNED:
        pytest.skip("no pinned pool")
    with filled("a", PINNED[0], device=device) as a, gpushm.create("b", 10, "int64", pool=next(iter(GPU_POOLS))) as b:
        b.copy_to_device(a)
        assert b.tolist() == VALUES
        b.fill(5)
        a.copy_to_device(b)
        assert a.numpy().tolist() == [5] * 10
        b.discard()
        a.discard()


def test_a_gpu_that_is_not_there_is_refused() -> None:
    with filled("a", next(iter(GPU_POOLS))) as a:
        a.publish("shared")
        with pytest.raises(gpushm.Error, match="63"):
            gpushm.open("a", device=63)
        a.unlink()
