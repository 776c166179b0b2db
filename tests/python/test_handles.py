# SPDX-License-Identifier: MIT
"""Handles and pickles: the scenarios that numba-cuda and cuda.core have for theirs, with names instead."""

from __future__ import annotations

import copy
import ctypes
import multiprocessing as mp
import os
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import forkserver, resource_tracker
from typing import Any

import gpushm
import numpy as np
import pytest

SLICES = [None, slice(3, None), slice(3, 8), slice(None, 8), slice(None, None, -2)]
METHODS = ["spawn", "forkserver"]


# ---- functions that run in other processes ----


def fetch(handle: gpushm.types.Handle) -> Any:
    with handle as a:
        return a.copy_to_host()


def fetch_array(a: gpushm.Array) -> Any:
    with a:
        return a.copy_to_host()


def fetch_twice(handle: gpushm.types.Handle) -> Any:
    with handle as a, handle as again:
        assert a is not again and a.buffer.id == again.buffer.id
        return a.copy_to_host(), again.copy_to_host()


def double(a: gpushm.Array) -> int:
    with a:
        a[...] = a.copy_to_host() * 2
    return os.getpid()


def double_sent(a: gpushm.Array, told: Any) -> None:
    told.put(double(a))


def double_received(arrays: Any, told: Any) -> None:
    told.put(double(arrays.get(timeout=60)))


def double_from_pipe(pipe: Any) -> None:
    double(pipe.recv())
    pipe.send("done")


def make(name: str, pool: str) -> gpushm.Array:
    a = gpushm.create(name, 4, "int32", pool=pool)
    a[...] = 7
    a.publish()
    return a


def names_and_sums(b: gpushm.Buffer) -> dict[str, float]:
    with b:
        return {name: float(a.copy_to_host().sum()) for name, a in b.items()}


def error_of(handle: gpushm.types.Handle) -> tuple[str, str]:
    try:
        handle.open()
    except Exception as e:
        return type(e).__name__, str(e)
    return "", ""


# ---- handles ----


def filled(name: str, want: Any, pool: str, state: str = "sealed") -> gpushm.Array:
    a = gpushm.create(name, want.shape, want.dtype, pool=pool)
    a.copy_from_host(want)
    a.publish(state)
    return a


@pytest.fixture(scope="module", autouse=True)
def workers() -> Any:
    """Two processes that were spawned, and multiprocessing's own helpers, whose descriptors stay open."""
    mp.set_forkserver_preload(["gpushm", "numpy"])
    forkserver.ensure_running()
    resource_tracker.ensure_running()
    with ProcessPoolExecutor(2, mp.get_context("spawn")) as executor:
        list(executor.map(abs, range(8)))
        yield executor


@pytest.fixture
def named() -> Any:
    """Names that are unlinked at the end of the test."""
    names: list[str] = []

    def take(name: str = "a") -> str:
        names.append(name)
        return name

    yield take
    for name in names:
        gpushm.unlink(name)


@pytest.mark.parametrize("part", SLICES, ids=str)
def test_a_handle_of_a_slice_opens_the_slice(pool: str, part: Any, workers: Any, named: Any) -> None:
    want = np.arange(10, dtype=np.intp)
    with filled(named(), want, pool) as a:
        view = a if part is None else a[part]
        expected = want if part is None else want[part]
        handle = pickle.loads(pickle.dumps(view.handle()))
        assert handle == view.handle() and (handle.shape, handle.dtype) == (expected.shape, want.dtype)
        view.close() if part is not None else None
        got = workers.submit(fetch, handle).result(60)
        assert got.dtype == want.dtype and np.array_equal(got, expected)


@pytest.mark.parametrize("view", ["a.T", "a.reshape(3, 2, 4)", "a[::-1, 1]", "a.view('uint8')", "a[2, 3:4]", "a[0:0]"])
def test_a_handle_of_a_view_opens_the_view(pool: str, view: str, workers: Any, named: Any) -> None:
    want = np.arange(24, dtype="int32").reshape(6, 4)
    with filled(named(), want, pool) as a:
        viewed = eval(view, {"a": a})
        got = workers.submit(fetch, viewed.handle()).result(60)
        expected = eval(view, {"a": want})
        assert got.shape == expected.shape and np.array_equal(got, expected)
        del viewed


@pytest.mark.parametrize("dtype", [[("x", "f4"), ("y", "i8", (2,))], "S5", "M8[ns]", "bool", "complex64"], ids=str)
def test_a_handle_keeps_its_dtype(host_pool: str, dtype: Any, workers: Any, named: Any) -> None:
    want = np.zeros(5, dtype)
    with filled(named(), want, host_pool) as a:
        got = workers.submit(fetch, a[1:].handle()).result(60)
        assert got.dtype == want.dtype and got.shape == (4,)


def test_a_packed_array_has_a_handle(pool: str, workers: Any, named: Any) -> None:
    with gpushm.create(named(), (4, 4), "float4_e2m1fn", pool=pool) as a:
        a.copy_from_host(bytes(range(8)))
        a.publish()
        with a.handle() as again:
            out = bytearray(8)
            again.copy_to_host(out)
            assert bytes(out) == bytes(range(8)) and again.dtype_name == "float4_e2m1fn"


def test_a_handle_opens_twice_at_the_same_time(pool: str, workers: Any, named: Any) -> None:
    want = np.arange(4.0)
    with filled(named(), want, pool) as a:
        first, second = workers.submit(fetch_twice, a.handle()).result(60)
        assert np.array_equal(first, want) and np.array_equal(second, want)


def test_the_process_that_made_a_handle_opens_it(pool: str, named: Any) -> None:
    want = np.arange(4.0)
    with filled(named(), want, pool, "shared") as a:
        handle = a[1:].handle()
        with handle as here:
            here[0] = 9
            assert a[1] == 9 and here.buffer.id == a.buffer.id
        assert here.closed
        again = handle.open()
        with pytest.raises(gpushm.errors.InUse):
            view = again[1:]
            handle.close()
        del view
        handle.close()
        assert again.closed
        handle.close()


def test_the_end_of_a_block_closes_its_own_open_alone(pool: str, named: Any) -> None:
    with filled(named(), np.arange(4), pool) as a:
        handle = a.handle()
        with handle as outer:
            other = handle.open()
            with handle as inner:
                assert inner[1] == 1
            assert inner.closed and not other.closed and not outer.closed
        assert outer.closed and not other.closed
        handle.close()
        assert other.closed


def test_a_dropped_array_of_a_handle_ends_its_lease(pool: str, named: Any) -> None:
    with filled(named(), np.arange(4), pool) as a:
        handle, before = a.handle(), gpushm.status().leases
        for _ in range(3):
            opened = handle.open()
            handle.open().close()
        assert gpushm.status().leases == before + 1 and not opened.closed
        del opened
        assert gpushm.status().leases == before


def test_a_handle_waits_for_publication_up_to_its_timeout(host_pool: str, named: Any) -> None:
    with gpushm.create(named(), 4, pool=host_pool) as a:
        handle = a.handle()
        with pytest.raises(gpushm.errors.NotPublished):
            handle.open()
        with pytest.raises(gpushm.errors.Timeout):
            handle.open(timeout=0.01)
        a.publish()
        with handle.open(timeout=60) as again:
            assert again.shape == (4,)


def test_a_handle_refuses_another_buffer_of_its_name(host_pool: str, named: Any) -> None:
    with filled("a", np.arange(4), host_pool) as a:
        handle = a.handle()
        gpushm.unlink("a")
        with pytest.raises(gpushm.errors.NotFound):
            handle.open()
        another = pytest.raises(gpushm.errors.NotFound, match="another one by now")
        with filled(named(), np.arange(4), host_pool), another:
            handle.open()


def test_a_handle_gives_at_most_its_makers_access(host_pool: str, named: Any) -> None:
    with filled(named(), np.arange(4), host_pool, "shared"):
        with gpushm.open("a") as reader, reader.handle() as again:
            assert reader.handle().access == "r" and again.readonly
        with gpushm.open("a", "r+") as writer, writer.handle() as again:
            assert not again.readonly
            with writer.handle().open("r") as less:
                assert less.readonly


def test_a_handle_asks_the_daemon_that_it_came_from(other_daemon: Any, workers: Any) -> None:
    with gpushm.connect(other_daemon.socket) as c:
        a = c.create("there", 3, "int16", pool="host")
        a[...] = 5
        a.publish()
        handle = a.handle()
        a.close()
        assert list(workers.submit(fetch, handle).result(60)) == [5, 5, 5]
        peers = c.status().peers
        arrived = [pickle.loads(pickle.dumps(handle)).open() for _ in range(5)]
        assert c.status().peers == peers + 1 and all(a[0] == 5 for a in arrived)
        arrived[0].buffer.connection.close()
        assert handle.open()[1] == 5
        del arrived
        c.unlink("there")


def test_a_handle_finds_its_socket_from_any_folder(other_daemon: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(other_daemon.folder)
    with gpushm.connect("s") as c:
        a = c.create("there", 3, "int16", pool="host")
        a.publish()
        handle = a.handle()
        monkeypatch.chdir("/")
        assert handle.open().shape == (3,)
        a.close()
        c.unlink("there")


# ---- the bytes, which C reads and writes, too ----


@pytest.fixture
def library() -> Any:
    """The package's own libgpushm, as a C program calls it."""
    found = ctypes.CDLL(os.path.join(os.path.dirname(gpushm.__file__), "libgpushm.so.1"))
    found.gpushm_error.restype = ctypes.c_char_p
    return found


def in_c(library: Any, function: str, *arguments: Any) -> ctypes.c_void_p:
    """What a function has written to its last parameter."""
    made = ctypes.c_void_p()
    assert getattr(library, function)(*arguments, ctypes.byref(made)) == 0, library.gpushm_error()
    return made


def test_a_handle_of_c_opens_in_python_and_that_of_python_in_c(pool: str, library: Any, named: Any) -> None:
    want = np.arange(24, dtype="f4").reshape(4, 6)
    with filled(named(), want, pool, "shared") as a:
        c = in_c(library, "gpushm_connect", None)
        b = in_c(library, "gpushm_open", c, b"a", 2, ctypes.c_uint64(0), None)
        array = in_c(library, "gpushm_array_at", b, ctypes.c_size_t(0))
        view = in_c(library, "gpushm_array_slice", array, 1, *map(ctypes.c_int64, (5, 0, -2)))
        data = ctypes.create_string_buffer(1024)
        n = in_c(library, "gpushm_array_handle", view, data, ctypes.c_size_t(1024)).value
        made_in_c = gpushm.types.Handle(data.raw[:n])
        assert made_in_c == a[:, 5:0:-2].handle() and bytes(made_in_c) == data.raw[:n]
        assert (made_in_c.name, made_in_c.access, made_in_c.shape, made_in_c.size) == ("a", "r+", (4, 3), 48)
        with made_in_c as opened:
            assert np.array_equal(opened.copy_to_host(), want[:, 5:0:-2]) and not opened.readonly
        ours = bytes(a[2, 1:].handle())
        there = in_c(library, "gpushm_open_handle", c, ours, ctypes.c_size_t(len(ours)), None)
        out = np.zeros(5, "f4")
        assert library.gpushm_copy_to_host(there, ctypes.c_void_p(out.ctypes.data), None) == 0
        assert np.array_equal(out, want[2, 1:])
        for one in (there, view, array):
            library.gpushm_array_free(one)
        assert library.gpushm_close(b) == 0
        library.gpushm_disconnect(c)


def test_bytes_that_were_changed_or_cut_are_refused(host_pool: str, named: Any) -> None:
    with filled(named(), np.arange(4), host_pool) as a:
        whole = bytes(a.handle())
    assert gpushm.types.Handle(list(whole)) == gpushm.types.Handle(whole) != gpushm.numba.IpcArrayHandle(whole)
    for wrong in (whole[:-1], whole + b"x", b"", whole[:30] + b"?" + whole[31:], "a", None, [1000], b"gpushm"):
        for kind in (gpushm.types.Handle, gpushm.numba.IpcArrayHandle):
            with pytest.raises(ValueError, match="handle of gpushm"):
                kind(wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("fields", [b"((", b"[]", b"a(", b"1("])
def test_fields_that_make_no_sense_are_refused(host_pool: str, named: Any, fields: bytes) -> None:
    with filled(named(), np.zeros(5, [("x", "f4"), ("n", "i8")]), host_pool) as a:
        wrong = bytes(a.handle())[:-8].replace(b"[(", fields, 1)
    checksum = 0xCBF29CE484222325
    for byte in wrong:
        checksum = (checksum ^ byte) * 0x100000001B3 % 2**64
    with pytest.raises(ValueError, match="handle of gpushm"):
        gpushm.types.Handle(wrong + checksum.to_bytes(8, "little"))


def test_a_record_of_many_fields_has_a_handle(host_pool: str, workers: Any, named: Any) -> None:
    want = np.zeros(5, [(f"a_long_name_{i}", "f8") for i in range(100)])
    want["a_long_name_7"] = 3
    with filled(named(), want, host_pool) as a:
        handle = a[1:].handle()
        assert len(bytes(handle)) <= 1024 and handle.dtype is None and "record" in repr(handle)
        got = workers.submit(fetch, handle).result(60)
        assert got.dtype == want.dtype and np.array_equal(got, want[1:])


def test_more_than_sixteen_dimensions_have_no_handle(host_pool: str, named: Any) -> None:
    with filled(named(), np.zeros([1] * 17), host_pool) as a, pytest.raises(gpushm.Error, match="17 dimensions"):
        a.handle()


# ---- arrays that pickle by themselves ----


@pytest.mark.parametrize("method", METHODS)
def test_an_array_passes_through_queues_and_pipes(pool: str, method: str, named: Any) -> None:
    ctx = mp.get_context(method)
    with filled(named(), np.arange(10), pool, "shared") as a:
        told, arrays = ctx.Queue(), ctx.Queue()
        here, there = ctx.Pipe()
        started = [
            ctx.Process(target=double_sent, args=(a[8:], told)),
            ctx.Process(target=double_received, args=(arrays, told)),
            ctx.Process(target=double_from_pipe, args=(there,)),
        ]
        for process in started:
            process.start()
        arrays.put(a[3:8])
        assert len({told.get(timeout=60), told.get(timeout=60)}) == 2
        here.send(a[:3])
        assert here.recv() == "done"
        for process in started:
            process.join(60)
            assert process.exitcode == 0
        assert list(a.copy_to_host()) == list(range(0, 20, 2))
        arrays.close(), told.close(), here.close(), there.close()
        arrays.join_thread(), told.join_thread()


@pytest.mark.parametrize("method", METHODS)
def test_a_worker_pool_gets_its_arrays(host_pool: str, method: str) -> None:
    arrays = [filled(f"task/{i}", np.full(8, i), host_pool, "shared") for i in range(20)]
    with mp.get_context(method).Pool(2) as pool:
        assert len(set(pool.map(double, arrays, chunksize=1))) <= 2
        for _ in range(2):
            pool.map(double, arrays[3:4])
        pool.close()
        pool.join()
    for i, a in enumerate(arrays):
        assert (a.copy_to_host() == i * (8 if i == 3 else 2)).all()
        a.close()
        a.unlink()


def test_a_worker_returns_an_array(pool: str, workers: Any, named: Any) -> None:
    with workers.submit(make, named(), pool).result(60) as a:
        assert (a.copy_to_host() == 7).all() and a.owns_buffer and a.readonly


def test_a_buffer_of_many_arrays_pickles(pool: str, workers: Any, named: Any) -> None:
    with gpushm.create_many(named(), {"w": ((3, 4), "f4"), "b": (5, "i2")}, pool=pool) as b:
        with b["w"] as w, b["b"] as i:
            w[...], i[...] = 2, 3
        b.publish()
        assert workers.submit(names_and_sums, b).result(60) == {"w": 24.0, "b": 15.0}
        with b["b"] as i:
            assert list(workers.submit(fetch_array, i[1:3]).result(60)) == [3, 3]


def test_an_unpublished_array_refuses_to_pickle(host_pool: str, named: Any) -> None:
    with gpushm.create(named(), 4, pool=host_pool) as a:
        with pytest.raises(gpushm.errors.StateError, match="before it is published"):
            pickle.dumps(a)
        with pytest.raises(gpushm.errors.StateError, match="before it is published"):
            pickle.dumps(a.buffer)
        a.publish()
    with pytest.raises(ValueError, match="closed"):
        pickle.dumps(a)


def test_an_error_of_a_worker_has_its_type_and_text(host_pool: str, workers: Any) -> None:
    with filled("a", np.arange(4), host_pool) as a:
        handle = a.handle()
    gpushm.unlink("a")
    kind, text = workers.submit(error_of, handle).result(60)
    assert kind == "NotFound" and '"a"' in text


def test_an_exception_pickles_with_its_text_and_code(host_pool: str) -> None:
    with pytest.raises(gpushm.errors.NotFound) as caught:
        gpushm.open("not/there")
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is gpushm.errors.NotFound and str(again) == str(caught.value) and again.code == caught.value.code


def test_copy_shares_memory_and_deepcopy_is_refused(host_pool: str) -> None:
    with gpushm.create("a", 4, pool=host_pool) as a:
        with copy.copy(a) as same:
            same[0] = 3
        assert a[0] == 3
        with pytest.raises(TypeError, match="to_device"):
            copy.deepcopy(a)
        with pytest.raises(TypeError, match="create_many"):
            copy.deepcopy(a.buffer)


def test_a_forked_child_has_its_parents_array_in_host_memory(pool: str, named: Any) -> None:
    """In other memory it has not. Where the parent has not started CUDA, the child can open it again."""
    with filled(named(), np.arange(4), pool) as a:
        pid = os.fork()
        if pid == 0:
            status = 1
            try:
                try:
                    status = 2 if list(a) == [0, 1, 2, 3] and a.kind == "host" else 1
                except gpushm.errors.ForkError as e:
                    status = 2 if "fork" in str(e) and a.kind != "host" else 1
                try:
                    with a.handle() as again:
                        status += 2 if again.kind == "host" and list(again) == [0, 1, 2, 3] else 0
                except gpushm.Error as e:
                    status += 2 if a.kind != "host" and "fork" in str(e) else 0
            finally:
                os._exit(status)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 4
