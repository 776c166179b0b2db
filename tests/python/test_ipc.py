# SPDX-License-Identifier: MIT
"""Numba's CUDA IPC with its names: anonymous buffers, and handles that keep the memory and are opened once."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import pickle
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import resource_tracker
from typing import Any

import gpushm
import numpy as np
import pytest
from copies import to_device

from daemon import Daemon

SLICES = [None, slice(3, None), slice(3, 8), slice(None, 8)]
RECORD = np.dtype([("x", "f4"), ("n", "i8", (2,))], align=True)
on_host_too = pytest.mark.parametrize("foreign", [False, True], ids=["array", "foreign"])


class Foreign:
    """An array of another library."""

    def __init__(self, array: gpushm.Array) -> None:
        self._array = array
        if array.device_ptr is None:
            self.__array_interface__ = array.numpy().__array_interface__
        else:
            self.__cuda_array_interface__ = array.__cuda_array_interface__


def part_of(a: gpushm.Array, part: slice | None, foreign: bool) -> gpushm.Array:
    view = a if part is None else a[part]
    return gpushm.as_array(Foreign(view)) if foreign else view


# ---- functions that run in other processes ----


def elsewhere(maker: int) -> None:
    assert os.getpid() != maker


def read_bytes(handle: bytes | tuple[int, ...], size: int, maker: int) -> Any:
    elsewhere(maker)
    with gpushm.numba.open_ipc_array(handle, shape=size // 8, dtype=np.dtype(np.intp)) as a:
        return a.copy_to_host()


def read_raw(handle: gpushm.numba.IpcHandle, maker: int) -> Any:
    elsewhere(maker)
    assert handle.base is None
    a = handle.open_array(None, shape=handle.size // 8, dtype=np.dtype(np.intp))
    found = a.copy_to_host()
    handle.close()
    assert a.closed
    return found


def read_array(handle: gpushm.numba.IpcArrayHandle, maker: int) -> Any:
    elsewhere(maker)
    with handle as a:
        found = a.copy_to_host()
        with pytest.raises(ValueError, match="IpcHandle is already opened"), handle:
            pass
        assert not a.closed
    assert a.closed
    with handle as again:
        assert np.array_equal(again.copy_to_host(), found)
    return found


def write_array(handle: gpushm.numba.IpcArrayHandle) -> None:
    with handle as a:
        a[...] = 7


def error_of(handle: Any) -> tuple[str, str]:
    try:
        handle.open()
    except Exception as e:
        return type(e).__name__, str(e)
    return "", ""


@pytest.fixture(scope="module", autouse=True)
def workers() -> Iterator[ProcessPoolExecutor]:
    resource_tracker.ensure_running()
    with ProcessPoolExecutor(1, mp.get_context("spawn")) as executor:
        executor.submit(abs, 1).result()
        yield executor


# ---- anonymous buffers ----


def test_an_anonymous_array_ends_with_its_last_view(pool: str) -> None:
    a = to_device(np.arange(4), pool=pool)
    assert a.anonymous and a.buffer.anonymous and a.state == "filling" and list(a.copy_to_host()) == [0, 1, 2, 3]
    view = a[1:]
    del a
    assert len(gpushm.ls()) == 1 and view[0] == 1
    view.close()
    del view
    assert gpushm.ls() == []


@pytest.mark.parametrize(
    "make",
    [
        lambda **o: gpushm.create(None, 4, **o),
        lambda **o: gpushm.create_like(None, np.zeros(4), **o),
        lambda **o: gpushm.create_many(None, {"a": (4, "f4")}, **o),
        lambda **o: gpushm.connect().create(None, 4, **o),
    ],
)
def test_every_way_to_create_works_without_a_name(host_pool: str, make: Any) -> None:
    with make(pool=host_pool) as one, make(pool=host_pool) as two:
        assert one.anonymous and one.name != two.name
        [info] = gpushm.ls(one.name)
        assert info.transient and str(os.getpid()) in info.name and info.name.startswith("~/")
    with gpushm.create("a", 4, pool=host_pool) as a:
        assert not a.anonymous
    with pytest.raises(TypeError, match="name must be a str"):
        gpushm.create(5, 4)  # type: ignore[arg-type]


def test_sending_an_anonymous_array_publishes_it(pool: str, workers: Any) -> None:
    with to_device(np.arange(4), pool=pool) as a:
        assert a.state == "filling"
        workers.submit(write_array, a.get_ipc_handle()).result(60)
        assert a.state == "shared" and list(a.copy_to_host()) == [7] * 4
    with to_device(np.arange(4), pool=pool) as a:
        assert np.array_equal(workers.submit(np.asarray, a).result(60), np.arange(4))
    with to_device(np.arange(4), pool=pool) as a:
        a.publish()
        with a.handle() as again:
            assert again.readonly


def test_an_anonymous_array_is_sent_also_while_another_thread_publishes_it(
    pool: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def published_meanwhile(buffer: Any) -> None:
        monkeypatch.undo()
        with ThreadPoolExecutor(1) as other:
            other.submit(buffer.publish, "shared").result(60)

    with to_device(np.arange(4), pool=pool) as a:
        monkeypatch.setattr(gpushm._libraries, "before_publish", published_meanwhile)
        handle = a.handle()
        assert handle.access == "r+" and a.state == "shared"
        with handle as again:
            assert list(again.copy_to_host()) == [0, 1, 2, 3]


def test_an_anonymous_array_is_sent_by_many_threads_at_once(host_pool: str) -> None:
    with ThreadPoolExecutor(4) as threads:
        for _ in range(50):
            with gpushm.create(None, 4, pool=host_pool) as a:
                sent = {future.result(60) for future in [threads.submit(pickle.dumps, a) for _ in range(4)]}
                assert len(sent) == 1


def test_an_anonymous_array_ends_with_its_last_user(pool: str) -> None:
    a = to_device(np.arange(4), pool=pool)
    handle = pickle.loads(pickle.dumps(a.get_ipc_handle()))
    with handle as again:
        a.close()
        assert list(again.copy_to_host()) == [0, 1, 2, 3] and len(gpushm.ls()) == 1
        with handle_of(again) as third:
            assert third[3] == 3
    assert gpushm.ls() == []


def handle_of(a: gpushm.Array) -> gpushm.types.Handle:
    return pickle.loads(pickle.dumps(a.handle()))


def test_a_handle_of_a_closed_array_tells_the_reason(pool: str, workers: Any) -> None:
    with to_device(np.arange(4), pool=pool) as a:
        handles = [a.handle(), a.get_ipc_handle(), gpushm.numba.get_ipc_handle(a)]
    for handle in handles:
        kind, text = workers.submit(error_of, handle).result(60)
        assert kind == "NotFound" and f"process {os.getpid()}" in text and "closed it" in text


@pytest.mark.parametrize("how", ["exit", "kill"])
def test_a_handle_of_a_dead_process_tells_the_reason(pool: str, how: str) -> None:
    code = f"""
import gpushm, numpy, os, pickle, signal, sys
a = gpushm.create_like(None, numpy.arange(4), pool={pool!r})
a.copy_to_device(numpy.arange(4))
sys.stdout.buffer.write(pickle.dumps((os.getpid(), a.get_ipc_handle(), gpushm.numba.get_ipc_handle(a.gpu_data))))
sys.stdout.flush()
sys.stdin.read(1)
if {how == "kill"}:
    os.kill(os.getpid(), signal.SIGKILL)
"""
    maker = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert maker.stdin is not None and maker.stdout is not None
    pid, handle, raw = pickle.load(maker.stdout)
    with handle as a:
        maker.stdin.write(b".")
        maker.stdin.close()
        assert maker.wait(60) == (-signal.SIGKILL if how == "kill" else 0)
        assert list(a.copy_to_host()) == [0, 1, 2, 3]
        # A user remains: the buffer can be opened still.
        raw.open()
        raw.close()
    maker.stdout.close()
    # The daemon ends the lease of a process that was killed a little later.
    while gpushm.ls():
        pass
    for gone in (handle, raw):
        with pytest.raises(gpushm.errors.NotFound, match=f"process {pid}, which made it"):
            gone.open()


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can be somebody else")
def test_another_user_is_told_that_an_anonymous_buffer_is_private(host_pool: str) -> None:
    os.chmod(os.path.dirname(os.environ["GPUSHM_SOCKET"]), 0o711)
    code = """
import gpushm, numpy, os, pickle, sys
handle = pickle.load(sys.stdin.buffer)
os.setuid(1001)
try:
    print(handle.open().copy_to_host().tolist())
except gpushm.errors.NotFound as e:
    print(e)
"""

    def run(a: gpushm.Array) -> str:
        told = pickle.dumps(a.handle())
        return subprocess.run([sys.executable, "-c", code], input=told, capture_output=True, check=True).stdout.decode()

    with to_device(np.arange(3, dtype="u1"), pool=host_pool) as a:
        assert "user 0 is private" in run(a)
    with to_device(np.arange(3, dtype="u1"), pool=host_pool, mode=0o666) as a:
        assert run(a) == "[0, 1, 2]\n" and not a.name.startswith("~")


# ---- Numba's scenarios ----


def test_the_bytes_of_a_handle_open_its_memory(pool: str, workers: Any) -> None:
    want = np.arange(10, dtype=np.intp)
    devarr = to_device(want, pool=pool)
    ipch = gpushm.numba.get_ipc_handle(devarr.gpu_data)
    reserved = ipch.handle.reserved
    assert type(reserved) is bytes and ipch.size == want.nbytes and ipch.base is not None
    for sent in (reserved, tuple(reserved)):
        assert np.array_equal(workers.submit(read_bytes, sent, ipch.size, os.getpid()).result(60), want)
    with gpushm.numba.open_ipc_array(reserved, (2, 2), "i8", strides=(32, 8), offset=8) as a:
        assert a.copy_to_host().tolist() == [[1, 2], [5, 6]]
    assert a.closed
    with pytest.raises(gpushm.errors.LayoutError), gpushm.numba.open_ipc_array(reserved, 1 << 40, "i8"):
        pass


@pytest.mark.parametrize("wrong", [bytes(64), b"[1]", b'["a", "b"]', b'"ab"', (300,), "text", None])
def test_bytes_of_something_else_are_refused_as_a_handle(wrong: Any) -> None:
    with pytest.raises(ValueError, match="no handle of gpushm"), gpushm.numba.open_ipc_array(wrong, 4, "u1"):
        pass


@on_host_too
@pytest.mark.parametrize("part", SLICES, ids=str)
def test_a_raw_handle_opens_the_same_bytes(pool: str, part: slice | None, foreign: bool, workers: Any) -> None:
    want = np.arange(10, dtype=np.intp)
    devarr = to_device(want, pool=pool)
    devarr = part_of(devarr, part, foreign)
    expected = want if part is None else want[part]
    ipch = gpushm.numba.get_ipc_handle(devarr.gpu_data)
    again = pickle.loads(pickle.dumps(ipch))
    assert again.base is None and again.size == ipch.size == expected.nbytes
    assert again.handle.reserved == ipch.handle.reserved and again.offset == ipch.offset
    assert np.array_equal(workers.submit(read_raw, ipch, os.getpid()).result(60), expected)


@on_host_too
@pytest.mark.parametrize("part", SLICES, ids=str)
def test_an_array_handle_opens_the_same_bytes(pool: str, part: slice | None, foreign: bool, workers: Any) -> None:
    want = np.arange(10, dtype=np.intp)
    devarr = to_device(want, pool=pool)
    devarr = part_of(devarr, part, foreign)
    expected = want if part is None else want[part]
    assert np.array_equal(workers.submit(read_array, devarr.get_ipc_handle(), os.getpid()).result(60), expected)


@pytest.mark.parametrize(
    ("want", "view"),
    [
        (np.arange(24, dtype="f4").reshape(4, 6), lambda a: a.T),
        (np.arange(24, dtype="f4").reshape(4, 6), lambda a: a[::-1, 1::2]),
        (np.asfortranarray(np.arange(24, dtype="i2").reshape(4, 6)), lambda a: a),
        (np.zeros(3, RECORD), lambda a: a[1:]),
        (np.arange(6, dtype="c16"), lambda a: a[2:2]),
        (np.array(5, "M8[ns]"), lambda a: a),
    ],
)
def test_a_handle_keeps_dtype_shape_and_elements(pool: str, want: np.ndarray, view: Any, workers: Any) -> None:
    a = to_device(want, pool=pool)
    found = workers.submit(read_array, view(a).get_ipc_handle(), os.getpid()).result(60)
    assert found.dtype == want.dtype and found.shape == view(want).shape and np.array_equal(found, view(want))
    assert a.strides == want.strides


def test_an_array_handle_is_made_of_memory_and_a_description_as_numbas(pool: str, workers: Any) -> None:
    want = np.arange(24, dtype="i8").reshape(4, 6)
    a = to_device(want, pool=pool)
    memory = gpushm.numba.get_ipc_handle(a[1:])
    desc = {"shape": (3, 2), "strides": (48, 8), "dtype": np.dtype("i8")}
    handle = gpushm.numba.IpcArrayHandle(memory, desc)
    again = pickle.loads(pickle.dumps(handle))
    assert again == handle and (again.shape, again.dtype, again.base) == ((3, 2), np.dtype("i8"), None)
    assert np.array_equal(workers.submit(read_array, handle, os.getpid()).result(60), want[1:, :2])
    with pytest.raises(ValueError, match="whole buffer"):
        gpushm.numba.IpcArrayHandle(memory)
    with pytest.raises(ValueError, match="no handle of gpushm"):
        gpushm.numba.IpcArrayHandle(bytes(64), desc)


def test_a_handle_keeps_its_memory(pool: str, workers: Any) -> None:
    handle = to_device(np.arange(4), pool=pool).get_ipc_handle()
    raw = gpushm.numba.get_ipc_handle(to_device(np.arange(8), pool=pool)[4:].gpu_data)
    gc.collect()
    assert handle.base is not None and not handle.base.closed and handle.size == 32
    assert raw.base is not None and raw.base.owner.shape == (4,)
    assert np.array_equal(workers.submit(read_array, handle, os.getpid()).result(60), np.arange(4))
    assert np.array_equal(workers.submit(read_raw, raw, os.getpid()).result(60), np.arange(4, 8))
    base = handle.base
    base.close()  # The handle itself is no user that a close() finds.
    with pytest.raises(gpushm.errors.NotFound, match="anonymous"):
        handle.open()


def test_a_second_open_or_close_of_a_handle_is_refused(pool: str) -> None:
    a = to_device(np.arange(4), pool=pool)
    handle, raw = a.get_ipc_handle(), gpushm.numba.get_ipc_handle(a)
    for h in (handle, raw):
        with pytest.raises(ValueError, match="IpcHandle not opened"):
            h.close()
        for _ in range(2):
            h.open()
            with pytest.raises(ValueError, match="IpcHandle is already opened"):
                h.open()
            h.close()
    for again in (raw.open_direct, raw.open_staged, lambda: raw.open_array(None, 4, "i8")):
        raw.open_direct()
        with pytest.raises(ValueError, match="already opened"):
            again()
        raw.close()
    with pytest.raises(gpushm.errors.LayoutError):
        raw.open_array(None, 1 << 40, "i8")
    raw.open()
    raw.close()
    # What keeps a Handle from being reopened is the array's own rule, and not this one.
    plain = a.handle()
    with plain, plain as twice:
        assert twice[3] == 3
    assert plain.base is None and plain.size == 32 and a.buffer.handle().size == a.buffer.nbytes


def test_a_handle_closes_its_views_and_warns_of_its_tensors(pool: str) -> None:
    a = to_device(np.arange(4), pool=pool)
    handle = a.get_ipc_handle()
    view = handle.open()[1:]
    handle.close()
    assert view.closed
    with pytest.warns(ResourceWarning, match="stays open"), handle as opened:
        tensor = opened.__dlpack__(max_version=(1, 0))
    del tensor


def test_a_pointer_has_the_arrays_address_and_size(pool: str) -> None:
    want = np.arange(24, dtype="f4").reshape(4, 6)
    with to_device(want, pool=pool) as a:
        for view in (a, a[1:3, ::2], a[::-1, ::-1]):
            data = view.gpu_data
            low = view.offset if view.strides[0] > 0 else 0
            assert (data.offset, data.size) == (low, 96 if view.strides[0] < 0 or view is a else 44)
            assert data.device_pointer_value == (None if a.device_ptr is None else a.device_ptr + low)
            assert data.owner is view
            if a.device_ptr is None:
                assert not getattr(data, "__cuda_memory__", False)
                with pytest.raises(TypeError, match="no GPU"):
                    _ = data.device_pointer
            else:
                assert data.__cuda_memory__ and data.device_ctypes_pointer.value == data.device_pointer == data.handle
        data = a.gpu_data
        assert (data.view(8).offset, data.view(8).size, data.view(8, 12).size) == (8, 88, 4)
        with pytest.raises(ValueError, match="not within"):
            data.view(8, 100)
        with pytest.raises(TypeError, match="get_ipc_handle"):
            pickle.dumps(data)
        with gpushm.create(None, (4, 4), "float4_e2m1fn", pool=pool) as packed:
            assert packed.gpu_data.size == 8
        del view, data


@pytest.mark.parametrize("access", ["r", "r+"])
def test_a_handle_has_the_access_of_its_array(host_pool: str, access: str) -> None:
    with to_device(np.arange(4), "a", pool=host_pool) as a:
        a.publish("shared")
        with gpushm.open("a", access) as b:
            with b.get_ipc_handle() as again:
                assert again.readonly == (access == "r")
            raw = gpushm.numba.get_ipc_handle(b.gpu_data)
            assert raw.open().owner.readonly == (access == "r")
            raw.close()
    gpushm.unlink("a")


STAGED = """
import ctypes, gpushm, numpy, os
pools = {p.device: p.name for p in gpushm.pools() if p.kind == "vmm"}
want = numpy.arange(10)
for device in (0, 1, type("Context", (), {"device": type("Device", (), {"id": 1})}), None):
    a = gpushm.create_like(None, want, pool=pools[0])
    a.copy_to_device(want)
    raw = gpushm.numba.get_ipc_handle(a[2:].gpu_data)
    for how in ("open_staged", "open_direct", "open"):
        pointer = getattr(raw, how)(device)
        ordinal = 1 if isinstance(device, type) else device or 0
        found = pointer.owner.view("i8").copy_to_host()
        assert numpy.array_equal(found, want[2:]), found
        if how == "open_staged":
            assert pointer.owner.pool == pools[ordinal] and pointer.owner.buffer.id != a.buffer.id
        else:
            assert pointer.owner.device == 0 and pointer.owner.buffer.id == a.buffer.id
        raw.close()
    real = raw.open_direct
    def refused(context):
        raise gpushm.errors.DeviceFailed(19, "no peer access")
    type(raw).open_direct, real = lambda self, context=None: refused(context), type(raw).open_direct
    if device is None:
        try:
            raw.open(device)
        except gpushm.errors.DeviceFailed:
            print("refused")
    else:
        assert raw.open(device).owner.pool == pools[ordinal]
        raw.close()
    type(raw).open_direct = real
    with a.get_ipc_handle() as b:
        assert numpy.array_equal(b.copy_to_host(), want)

# A thread that works on GPU 1, with and without peer access.
gpushm._driver._start()
made = ctypes.c_void_p()
gpushm._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(made), 1)
gpushm._driver.call("cuCtxPushCurrent_v2", made)
assert gpushm._driver.current_device() == 1
handle = a.view("f8").reshape(2, 5)[::-1, 1::2].get_ipc_handle()
strange = want.view("f8").reshape(2, 5)[::-1, 1::2]
with handle as b:
    assert b.buffer.id == a.buffer.id and numpy.array_equal(b.copy_to_host(), strange)
real = gpushm.types.Handle.open
def no_peer(self, access=None, timeout=0, *, device=None):
    if device not in (None, 0):
        raise gpushm.errors.DeviceFailed(19, "no peer access")
    return real(self, access, timeout, device=device)
gpushm.types.Handle.open = no_peer
with handle as b:
    assert b.pool == pools[1] and b.strides == strange.strides and numpy.array_equal(b.copy_to_host(), strange)
assert b.closed
try:
    handle.open(device=1)
except gpushm.errors.DeviceFailed:
    print("refused")
gpushm.types.Handle.open = real
gpushm._driver.call("cuCtxPopCurrent_v2", ctypes.byref(made))
gpushm._driver.call("cuDevicePrimaryCtxRelease_v2", 1)
del handle
for wrong in (2, "gpu"):
    try:
        raw.open_staged(wrong)
    except (gpushm.errors.NotFound, TypeError) as e:
        print(type(e).__name__, e)
del raw, pointer
a.close()
assert gpushm.ls() == []
print("done")
"""


def test_a_handle_opens_directly_or_staged_on_another_gpu(in_child: Callable[..., str], tmp_path: Any) -> None:
    if not any(p.kind == "vmm" for p in gpushm.pools()):
        pytest.skip("no GPU, nor our own libcuda")
    daemon = Daemon(FAKECUDA_DEVICES="2")
    with gpushm.types.Connection(daemon.socket) as c:
        gpus = len({p.device_uuid for p in c.pools() if p.kind == "vmm"})
    if gpus < 2:
        daemon.remove()
        pytest.skip("one real GPU; our own libcuda can have two")
    try:
        told = in_child(STAGED, GPUSHM_SOCKET=daemon.socket, FAKECUDA_DEVICES="2")
    finally:
        daemon.remove()
    assert told.count("refused") == 2 and "pool for you, device 2" in told
    assert "TypeError str is no context" in told and told.endswith("done\n")
