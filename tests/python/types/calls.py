# SPDX-License-Identifier: MIT
"""Calls of the package as type checkers see them; tests/lint/types.sh runs mypy and pyright, and nothing runs this.

A line with "type: ignore" is wrong, and each checker must say so: one that finds nothing there is reported.
"""

import asyncio
import multiprocessing as mp
from pathlib import Path
from typing import Any, Literal, assert_type

import gpushm
import gpushm.safetensors
import numpy as np
import numpy.typing as npt

Kind = Literal["host", "pinned", "vmm", "mempool"]
State = Literal["filling", "sealed", "shared"]
What = Literal["published", "dirty", "clean", "unlinked", "gone", "restarted", "unknown"]


class Stream:
    """Has the protocol, as cuda.core's streams have it."""

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, 1


class TheirArray:
    """Has the CUDA Array Interface alone."""

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {}


# ---- creating and opening ----


def creates() -> None:
    with gpushm.create("a", (8, 4), "float32", pool="host", mode=0o640, order="F", wait=None, device="current") as a:
        assert_type(a, gpushm.Array)
        a.publish("shared")
        a.publish()
        a.publish("filling")  # type: ignore
        with a.suspended(idle=True), a.buffer.suspended(timeout=None):
            a.resume(1)
        a.suspend(True)  # type: ignore
    gpushm.create(None, 4, np.float32, attrs={"k": b"v", "l": "text"}, transient=True).discard()
    gpushm.create("a", [2, 3], np.dtype("u1"), strides=(3, 1)).close()
    gpushm.create("a", 4, order="Z")  # type: ignore
    gpushm.create("a", 4, device="gpu0")  # type: ignore
    gpushm.create("a", "four")  # type: ignore
    gpushm.create(b"a", 4)  # type: ignore
    gpushm.create_many("b", {"w": np.zeros(3), "step": 0, "list": [1, 2], "theirs": TheirArray()}, stream=Stream())
    gpushm.create_many("b", {"w": Stream()})  # type: ignore
    with gpushm.create_many("b", {"w": ((4, 3), "float32"), "like": np.zeros(3)}, pool="host") as b:
        assert_type(b, gpushm.Buffer)
        b["w"] = 1.5
        b.update({"w": np.zeros((4, 3)), "like": TheirArray()}, stream=Stream())
        assert_type(b["w"], gpushm.Array)
        assert_type(b.get("w"), gpushm.Array | None)
        assert_type(b.get("w", 7), gpushm.Array | int)
        assert_type(b.attr("k"), bytes | None)
        assert_type(b.attr("k", ""), bytes | str)
        assert_type(b.keys(), list[str])
        assert_type(b.items(), list[tuple[str, gpushm.Array]])
        assert_type([name for name in b], list[str])
        assert_type(b.array((2, 2), "u1", offset=4), gpushm.Array)
        assert_type(b.handle(), gpushm.types.Handle[gpushm.Buffer])
        b.state = "sealed"  # type: ignore


def opens() -> None:
    with gpushm.open("a", "r+", timeout=5, array="w", shape=4, dtype=int, device=1, refuse_dirty=True) as a:
        assert_type(a, gpushm.Array)
        assert_type(a.state, State)
        assert_type(a.kind, Kind)
        assert_type(a.access, Literal["r", "r+", "c"])
        assert_type(a.device, int | None)
        assert_type(a.buffer, gpushm.Buffer)
        a.shape = (4,)  # type: ignore
    gpushm.open("a", "c", None).close()
    gpushm.open("a", "w")  # type: ignore
    gpushm.open("a", timeout="5")  # type: ignore
    assert_type(gpushm.open_many("b", "r+"), gpushm.Buffer)
    with gpushm.connect("/tmp/s") as c:
        assert_type(c, gpushm.types.Connection)
        assert_type(c.open("a"), gpushm.Array)
        assert_type(c.create("a", 4), gpushm.Array)


# ---- models ----


def loads() -> None:
    with gpushm.load(["a.safetensors", Path("b.safetensors")], "m", pool="host", only="layers.*", if_missing=True) as b:
        assert_type(b, gpushm.Buffer)
        gpushm.save(b, Path("c.safetensors"), metadata={"format": "pt"}, progress=lambda done, total: None)
        assert_type(gpushm.verify(b), str)
    gpushm.connect().load(b"folder", "m", replace=True, timeout=5, wait=None).close()
    gpushm.load("a.safetensors", "m", transport=gpushm.Transport(io="direct", threads=4, ca=Path("a.pem"))).close()
    with gpushm.safetensors.safe_open(Path("a"), framework="np", device="cpu", keep=True) as f:
        assert_type(f.keys(), list[str])
        assert_type(f.metadata(), dict[str, str] | None)
        assert_type(f.get_slice("w").get_shape(), list[int])
    gpushm.safetensors.save_file(gpushm.safetensors.load_file("a", 0, framework="pt"), "b", {"k": "v"})
    gpushm.safetensors.safe_open("a")  # type: ignore
    gpushm.Transport(io="mmap")  # type: ignore
    gpushm.load("a.safetensors", "m", io="direct")  # type: ignore
    assert_type(gpushm.pull("host/m", transport=gpushm.Transport(via="nixl", patience=5)), gpushm.Buffer)
    gpushm.load("a.safetensors", "m", progress=lambda done: None)  # type: ignore
    gpushm.save("m", 1)  # type: ignore


# ---- arrays ----


def uses(a: gpushm.Array) -> None:
    assert_type(a[1:], gpushm.Array)
    assert_type(a[..., None, ::2], gpushm.Array)
    assert_type(a[-1, ::2, 0], gpushm.Array)
    assert_type(a["field"], gpushm.Array)
    assert_type(a[0], Any)
    a[1.5]  # type: ignore
    a[0] = 7
    a[...] = [1, 2, 3]
    a["field"] = np.zeros(3)
    assert_type(a.T.reshape(2, -1).ravel("F").transpose(1, 0).view("u1"), gpushm.Array)
    assert_type(a.split(3), list[gpushm.Array])
    a.ravel("A")  # type: ignore
    assert_type(a.numpy(), npt.NDArray[Any])
    assert_type(a.copy_to_host(), npt.NDArray[Any])
    out = bytearray(4)
    assert_type(a.copy_to_host(out, stream=Stream()), bytearray)
    assert_type(a.copy_to_host(np.zeros(3), 1), np.ndarray[tuple[int], np.dtype[np.float64]])
    a.copy_from_host([1.0, 2.0])
    a.copy_from_host(b"1234", stream=Stream())
    a.copy_from_host(a.copy_to_host(), stream="s")  # type: ignore
    a.copy_to_device(TheirArray())
    a.copy_to_device(a[1:], stream=2)
    assert_type(a.flags["WRITEABLE"], bool)
    assert_type(np.asarray(a), npt.NDArray[Any])
    assert_type(memoryview(a), memoryview[int])
    np.from_dlpack(a)
    np.full(a.shape, 7, a.dtype)
    itemsize: int = a.dtype.itemsize
    assert_type(a == itemsize, Any)
    assert_type(list(a), list[Any])
    assert_type(gpushm.numba.is_cuda_array(a), bool)
    assert_type(gpushm.as_array(TheirArray()), gpushm.Array)


def makes() -> None:
    gpushm.numba.to_device(np.zeros(3), Stream(), copy=False)
    gpushm.numba.to_device(TheirArray(), to=gpushm.open("a", "r+"))
    gpushm.numba.to_device([1], "a")  # type: ignore
    assert_type(gpushm.numba.device_array((3, 4)), gpushm.Array)
    assert_type(gpushm.numba.device_array_like(np.zeros(3), stream=Stream()), gpushm.Array)
    gpushm.numba.to_device([1], nonsense=3)  # type: ignore
    assert_type(gpushm.create_like("a", np.zeros(3), dtype="int8"), gpushm.Array)
    assert_type(gpushm.numba.pinned_array((3, 4), "float64"), gpushm.Array)
    assert_type(gpushm.numba.mapped_array_like(np.zeros(3), wc=True), gpushm.Array)
    with gpushm.numba.mapped(np.zeros(3)) as one, gpushm.numba.pinned(np.zeros(3)), gpushm.numba.defer_cleanup():
        del one
    with gpushm.numba.auto_synchronize(Stream()), gpushm.numba.external_stream(7).auto_synchronize():
        pass
    with gpushm.numba.auto_synchronize():
        pass


# ---- handles ----


def sends(a: gpushm.Array) -> None:
    handle = a.handle()
    assert_type(handle, gpushm.types.Handle[gpushm.Array])
    assert_type(handle.open("r+", 5), gpushm.Array)
    assert_type(handle.shape, tuple[int, ...] | None)
    with handle as again:
        assert_type(again, gpushm.Array)
    ours = a.get_ipc_handle()
    with ours as there:
        assert_type(there, gpushm.Array)
    assert_type(ours.base, gpushm.Array | None)
    raw = gpushm.numba.get_ipc_handle(a.gpu_data)
    assert_type(raw.base, gpushm.numba.MemoryPointer | None)
    assert_type(raw.size, int)
    assert_type(raw.open_array(None, 4, "int64"), gpushm.Array)
    with gpushm.numba.open_ipc_array(raw.handle.reserved, shape=4, dtype=np.dtype(np.intp)) as there:
        assert_type(there, gpushm.Array)
    mp.Process(target=receives, args=(handle,)).start()


def receives(handle: gpushm.types.Handle) -> None:
    """A Handle without a parameter is that of an Array."""
    assert_type(handle.open(), gpushm.Array)


# ---- what there is, and what changes ----


def looks() -> None:
    for buffer in gpushm.ls("a/", holders=True):
        assert_type(buffer, gpushm.info.BufferInfo)
        assert_type(buffer.state, State)
        assert_type(buffer.holders[0].pid, int)
    for pool in gpushm.pools():
        assert_type(pool, gpushm.info.PoolInfo)
        assert_type(pool.kind, Kind)
        if pool.kind == "gpu":  # type: ignore
            pass
    assert_type(gpushm.stat("a").dirty_pid, int | None)
    assert_type(gpushm.status().usage, list[gpushm.info.Usage])
    with gpushm.watch("a", gpushm.open("a")) as watch:
        for event in watch:
            assert_type(event, gpushm.info.Event)
            assert_type(event.what, What)
        assert_type(watch.next(timeout=5), gpushm.info.Event)


async def waits() -> None:
    assert_type(await gpushm.open_async("a", "r+", timeout=5, device="current"), gpushm.Array)
    assert_type(await gpushm.open_async("a", connection=gpushm.connect()), gpushm.Array)
    await gpushm.wait_async("a")
    await gpushm.open_async("a", device="gpu0")  # type: ignore
    async for event in gpushm.watch("a"):
        assert_type(event, gpushm.info.Event)
        assert_type(event.what, What)


# ---- streams ----


def streams() -> None:
    arrays = {"rgb": ((4, 6, 3), "uint8")}
    gpushm.stream("s", {"rgb": ((4, 6, 3), "uint8"), "like": np.zeros(3)}).close()
    with gpushm.stream("s", arrays, slots=4, readers=2, limit=None, delivery="at-most-once", adopt=True, wait=5) as s:
        assert_type(s, gpushm.types.Stream)
        with s.frame(stream=Stream(), timeout=1) as f:
            assert_type(f, gpushm.types.Frame)
            assert_type(f["rgb"], gpushm.Array)
            assert_type(f.resize("rgb", (2, 3)), gpushm.Array)
            assert_type(f.seq, int)
            assert_type(f.time, float | None)
            f.meta = {"pts": 1}
            f.seq = 7  # type: ignore
        s.frame().publish(stream=None)
        s.frame(7, 5)  # type: ignore
        with s.graph(Stream(), where=4096) as g:
            assert_type(g, gpushm.types.GraphFrame)
            g.release(Stream())
            g.release(None)  # type: ignore
            assert_type(g.offset("rgb"), int)
            assert_type(g.next(7, timeout=None), gpushm.types.Frame)
            g.next("graph")  # type: ignore
        assert_type(s.stats().state, Literal["running", "ended", "orphaned"])
        assert_type(s.buffer, gpushm.Buffer)
    gpushm.stream("s", {"x": 4})  # type: ignore
    gpushm.stream("s", arrays, delivery="sometimes")  # type: ignore
    with gpushm.follow("s", "every", max_held=2, stream=Stream(), timeout=None) as reader:
        for frame in reader:
            assert_type(frame, gpushm.types.Frame)
            assert_type(frame.ok(), bool)
            assert_type(frame.keep(), gpushm.types.Frame)
        assert_type(reader.next(timeout=1, stream=None), gpushm.types.Frame)
        assert_type(reader.graph(7), gpushm.types.GraphFrame)
    gpushm.follow("s", "all")  # type: ignore
    for info in gpushm.streams("s"):
        assert_type(info, gpushm.info.StreamInfo)
        assert_type(info.readers[0].follow, Literal["every", "latest", "share"])


async def streams_in_a_loop() -> None:
    async with gpushm.connect().follow("s") as reader:
        assert_type(reader, gpushm.types.Reader)
        async for frame in reader:
            assert_type(frame, gpushm.types.Frame)
        assert_type(await reader.next_async(5), gpushm.types.Frame)
    with await gpushm.stream("s", {"x": (4, "u1")}).frame_async() as f:
        assert_type(f, gpushm.types.Frame)


asyncio.run(waits())
try:
    gpushm.open("a")
except gpushm.errors.NotFound as e:
    assert_type(e.code, str)
    assert_type(e.errno, int | None)
