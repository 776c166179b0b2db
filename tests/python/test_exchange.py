# SPDX-License-Identifier: MIT
"""What other libraries get: DLPack, the CUDA Array Interface, the buffer protocol; read-only stays read-only."""

from __future__ import annotations

import ctypes
import hashlib
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import gpushm
import numpy as np
import pytest


@pytest.fixture
def a(pool: str) -> Iterator[gpushm.Array]:
    """An array that is being filled."""
    with gpushm.create("a", (4, 6), "float32", pool=pool) as made:
        made[:] = np.arange(24).reshape(4, 6)
        yield made


class DLTensor(ctypes.Structure):
    """DLTensor, as in dlpack.h."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
                ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
                ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
                ("strides", ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64)]


class Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
                ("deleter", ctypes.c_void_p), ("flags", ctypes.c_uint64), ("tensor", DLTensor)]


class Legacy(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = [("tensor", DLTensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


READ_ONLY, IS_COPIED = 1, 2


def inside(capsule: object) -> Versioned | Legacy:
    """The tensor of a capsule."""
    get_name, get = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    get_name.restype, get_name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    name = get_name(capsule)
    found = (Versioned if name == b"dltensor_versioned" else Legacy).from_address(get(capsule, name))
    found.capsule = capsule
    return found


def test_a_tensor_has_the_arrays_memory_and_shape(a: gpushm.Array) -> None:
    for view in (a, a.T, a[1::2, ::2], a[3:3], a[1, 2:]):
        v = inside(view.__dlpack__(max_version=(1, 0)))
        t = v.tensor
        assert (v.major, v.flags, t.code, t.bits, t.lanes, t.byte_offset) == (1, 0, 2, 32, 1, 0)
        assert tuple(t.shape[: t.ndim]) == view.shape
        if view.size:
            assert tuple(4 * s for s in t.strides[: t.ndim]) == view.strides
        assert t.data == ((view.device_ptr or view.host_ptr) if view.size else None)
        assert (t.device_type, t.device_id) == view.__dlpack_device__()
        assert t.device_type == {"host": 1, "pinned": 3}.get(view.kind, 2)
        old = inside(view.__dlpack__())
        assert (old.tensor.data, old.tensor.device_type, old.tensor.ndim) == (t.data, t.device_type, t.ndim)


def test_a_negative_stride_is_refused_by_dlpack(a: gpushm.Array) -> None:
    """As PyTorch's from_dlpack() does."""
    for view in (a[::-1], a[1::2, ::-1]):
        for words in ({}, {"max_version": (1, 0)}):
            with pytest.raises(BufferError, match="negative stride"):
                view.__dlpack__(**words)
    assert a[1:2][::-1].__dlpack__()  # One element: the stride means nothing.


def test_a_capsule_that_nobody_takes_leaks_nothing(a: gpushm.Array) -> None:
    for _ in range(100):
        a.__dlpack__(max_version=(1, 1))
        a.__dlpack__()
        a.__dlpack__(dl_device=(1, 0), max_version=(1, 0))
    a.close()


def test_numpy_shares_memory_and_keeps_it_read_only(a: gpushm.Array) -> None:
    if a.device is not None:
        with pytest.raises((BufferError, RuntimeError, ValueError)):
            np.from_dlpack(a)
        assert np.from_dlpack(a, device="cpu").tolist() == np.arange(24).reshape(4, 6).tolist()
        return
    n = np.from_dlpack(a)
    assert n.ctypes.data == a.host_ptr
    n[0] = 5
    assert a[0, 0] == 5
    m = np.asarray(a)
    assert m.ctypes.data == a.host_ptr and m.flags.writeable
    del n, m
    a.publish()
    for n in (np.from_dlpack(a), np.asarray(a), a.numpy(), np.frombuffer(a, "f4")):
        assert not n.flags.writeable and n.ctypes.data == a.host_ptr
    del n
    a.unlink()


def test_a_read_only_array_is_refused_to_consumers_of_old_dlpack(a: gpushm.Array) -> None:
    a.publish()
    if a.readonly:
        # As JAX 0.10 asks.
        advice = r"JAX takes numpy.asarray\(array\)" if a.host_ptr else r"JAX takes array.copy_to_host\(\)"
        with pytest.raises(BufferError, match=f"read-only.*{advice}"):
            a.__dlpack__(stream=None)
        with pytest.raises(BufferError, match="read-only"):
            a.__dlpack__(max_version=(0, 8))
        assert inside(a.__dlpack__(max_version=(1, 1))).flags == READ_ONLY
    copy = inside(a.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 0)))
    assert copy.flags == IS_COPIED and copy.tensor.device_type == 1
    old = inside(a.__dlpack__(dl_device=(1, 0), copy=True))
    assert isinstance(old, Legacy)
    if a.device_ptr:
        assert a.__cuda_array_interface__["data"] == (a.device_ptr, a.readonly)
    a.unlink()


def test_a_copy_has_memory_of_its_own(a: gpushm.Array) -> None:
    capsule = a.T.__dlpack__(dl_device=(1, 0), copy=True, max_version=(1, 0))
    t = inside(capsule).tensor
    assert t.data != a.host_ptr and tuple(t.shape[:2]) == (6, 4) and tuple(t.strides[:2]) == (4, 1)
    got = np.ctypeslib.as_array((ctypes.c_float * 24).from_address(t.data)).reshape(6, 4)
    assert np.array_equal(got, np.arange(24).reshape(4, 6).T)
    a.close()


def test_a_dlpack_request_that_makes_no_sense_is_refused(a: gpushm.Array) -> None:
    own = a.__dlpack_device__()
    assert inside(a.__dlpack__(dl_device=own)).tensor.device_type == own[0]
    for wrong, error in (({"dl_device": (4, 0)}, BufferError), ({"dl_device": 7}, TypeError),
                         ({"max_version": 1}, TypeError), ({"stream": "x"}, TypeError)):
        with pytest.raises(error):
            a.__dlpack__(**wrong)
    if own[0] == 2:
        assert a.__dlpack__(stream=1) and a.__dlpack__(stream=2) and a.__dlpack__(stream=-1)
        for wrong, error in (({"stream": 0}, ValueError), ({"copy": True}, BufferError),
                             ({"dl_device": (1, 0), "copy": False}, BufferError)):
            with pytest.raises(error):
                a.__dlpack__(**wrong)
    elif own[0] == 1:
        with pytest.raises(ValueError, match="stream"):
            a.__dlpack__(stream=1)
    if own[0] == 3:
        # For memory that a GPU reaches, too, a consumer such as Numba passes a stream.
        assert a.__dlpack__(stream=1)
        assert inside(a.__dlpack__(dl_device=(1, 0), copy=False)).tensor.data == a.host_ptr


def test_the_cuda_array_interface_describes_the_array(a: gpushm.Array) -> None:
    if not a.device_ptr:
        assert not hasattr(a, "__cuda_array_interface__")
        return
    for view in (a, a.T, a[1::2, ::-1], a[3:3]):
        c = view.__cuda_array_interface__
        assert (c["version"], c["shape"], c["typestr"], c["stream"]) == (3, view.shape, "<f4", None)
        assert c["data"] == (view.device_ptr if view.size else 0, False)
        assert c["strides"] == (None if view.is_c_contiguous() else view.strides)
    arrays = {"r": (2, [("x", "f4"), ("y", "i4")]), "q": (4, "float8_e4m3fn"), "b": (4, "bfloat16")}
    with gpushm.create_many("m", arrays, pool=a.pool) as b:
        assert b["r"].__cuda_array_interface__["descr"] == [("x", "<f4"), ("y", "<i4")]
        assert b["r"].__cuda_array_interface__["typestr"] == "|V8"
        assert b["b"].__cuda_array_interface__["typestr"] == "<V2"
        assert not hasattr(b["q"], "__cuda_array_interface__")
        assert inside(b["q"].__dlpack__()).tensor.code == 10
        with pytest.raises(BufferError, match="records"):
            b["r"].__dlpack__()


def test_a_memoryview_has_the_arrays_format_and_elements(pool: str) -> None:
    with gpushm.create_many("m", {"x": ((2, 3), "int16"), "z": (2, "complex64"), "b": (2, "bfloat16"), "s": ((), "i8")},
                            pool=pool) as b:
        if b.host_ptr is None:
            with pytest.raises(BufferError, match="GPU"):
                memoryview(b["x"])
            return
        b["x"][:] = [[1, 2, 3], [4, 5, 6]]
        with memoryview(b["x"]) as m:
            assert (m.format, m.shape, m.strides, m.readonly) == ("h", (2, 3), (6, 2), False)
            assert m.tolist() == [[1, 2, 3], [4, 5, 6]]
        with memoryview(b["x"].T) as m:
            assert m.strides == (2, 6) and m.tolist() == [[1, 4], [2, 5], [3, 6]]
        b["s"][...] = 5
        with memoryview(b["s"]) as m:
            assert m.ndim == 0 and m.tolist() == 5
        assert bytes(b["x"]) == b["x"].numpy().tobytes() and len(bytes(b["z"])) == 16
        with pytest.raises(BufferError, match="format"):
            memoryview(b["b"])
        with pytest.raises(BufferError, match="contiguous"):
            hashlib.sha256(b["x"].T)


class PyBuffer(ctypes.Structure):
    """Py_buffer, as PEP 3118 has it."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.py_object), ("len", ctypes.c_ssize_t),
                ("itemsize", ctypes.c_ssize_t), ("readonly", ctypes.c_int), ("ndim", ctypes.c_int),
                ("format", ctypes.c_char_p), ("shape", ctypes.POINTER(ctypes.c_ssize_t)),
                ("strides", ctypes.POINTER(ctypes.c_ssize_t)), ("suboffsets", ctypes.c_void_p),
                ("internal", ctypes.c_void_p)]


def test_a_request_for_a_buffer_is_answered_as_by_memoryview(pool: str) -> None:
    """Compares with memoryview's answer to the same request, which consumers know."""
    with gpushm.create_many("m", {"x": ((2, 3), "int16"), "s": ((), "i8"), "n": ((0, 3), "f4")}, pool=pool) as b:
        if b.host_ptr is None:
            return
        ours: list[gpushm.Array] = [b["x"], b["x"][1], b["x"][:, :1], b["x"].T, b["s"], b["n"]]
        for array in ours:
            for flags in (0, 0x1, 0x8, 0x18, 0x38, 0x58, 0x98, 0x11C, 0x11D):
                told = []
                for exporter in (array, memoryview(array.numpy())):
                    view = PyBuffer()
                    try:
                        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(exporter), ctypes.byref(view), flags)
                    except BufferError:
                        told.append(None)
                        continue
                    n = view.ndim
                    told.append((view.len, view.itemsize, view.readonly, n, bool(view.format),
                                 view.shape[:n] if view.shape else None, view.strides[:n] if view.strides else None))
                    if n == 0:
                        assert not view.shape and not view.strides
                    ctypes.pythonapi.PyBuffer_Release(ctypes.byref(view))
                assert bool(told[0]) == bool(told[1])
                if told[0] and told[0][3] > 0 and array.size:
                    assert told[0] == told[1], hex(flags)
            del array, exporter
        ours.clear()


@pytest.mark.parametrize("how", ["int", "protocol", "property", "cupy", "torch", "numba"])
def test_a_stream_of_each_library_is_understood(a: gpushm.Array, how: str) -> None:
    class Handle:
        value = None

    stream = type("Stream", (), {
        "protocol": {"__cuda_stream__": lambda self: (0, 1)},
        "property": {"__cuda_stream__": (0, 2)},
        "cupy": {"ptr": 1},
        "torch": {"cuda_stream": 0},
        "numba": {"handle": Handle()},
    }.get(how, {}))() if how != "int" else 1
    want = np.arange(24, dtype="f4").reshape(4, 6)[::-1]
    source = want.copy()
    a.copy_from_host(source, stream)
    out = np.empty_like(want)
    a.copy_to_host(out, stream)
    assert np.array_equal(out, want)
    if a.device_ptr:
        assert a.__cuda_array_interface__["stream"] == (2 if how == "property" else 1)
    for wrong in ("stream", 1.5, object()):
        with pytest.raises(TypeError, match="stream"):
            a.copy_to_host(out, wrong)


def test_numpy_converts_an_array_and_is_refused_a_view_of_a_gpu(a: gpushm.Array) -> None:
    want = np.arange(24, dtype="f4").reshape(4, 6)
    assert np.array_equal(np.array(a), want)
    assert np.asarray(a, "f8").dtype == np.float64
    assert np.array_equal(a + np.float32(1) if False else np.add(a, 1), want + 1)
    copy = np.array(a, copy=True)
    copy[:] = 0
    assert a[1, 1] == 7
    if a.device is not None:
        with pytest.raises(ValueError, match="GPU"):
            np.asarray(a, copy=False)


def test_a_consumer_waits_for_a_copy_under_way(a: gpushm.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    class Stream:
        def __cuda_stream__(self) -> tuple[int, int]:
            return 0, 1

    waited: list[int] = []
    monkeypatch.setattr("gpushm._driver.synchronize", waited.append)
    stream, out = Stream(), np.empty((4, 6), "f4")
    gone = weakref.ref(stream)
    on_gpu, none = a.__dlpack_device__()[0] == 2, [] if a.kind == "host" else [1]
    a.copy_to_host(out, stream)
    del stream
    # The stream stays alive as long as a consumer may have to wait for it.
    assert (gone() is None) == (a.kind == "host")
    a.__dlpack__(stream=-1)
    if on_gpu:
        a.__dlpack__(stream=1)
        a.__dlpack__()
        assert waited == []
        a.__dlpack__(stream=2)
    else:
        a.__dlpack__()
    assert waited == none and gone() is None
    a.__dlpack__()
    a.copy_to_host(out, 0xDEAD0) if a.kind == "host" else None
    assert waited == none
    if a.device_ptr:
        assert a.__cuda_array_interface__["stream"] is None


class Stream:
    """A stream of cuda.core's; the driver cannot wait for a handle that is no stream."""

    def __init__(self, handle: int) -> None:
        self.handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def test_a_consumer_is_ordered_behind_every_copy(a: gpushm.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: waited.append(stream))
    if not a.device_ptr:
        return
    on_gpu, out = a.__dlpack_device__()[0] == 2, np.empty((4, 6), "f4")

    def queue(*handles: int) -> None:
        for handle in handles:
            a.copy_to_host(out, Stream(handle))
        del waited[:]

    queue(1, 2)
    a.__dlpack__(stream=2 if on_gpu else None)
    assert waited == ([1] if on_gpu else [1, 2])
    queue(1, 2, 1)
    assert a.__cuda_array_interface__["stream"] == 1 and waited == [2]
    assert a.__cuda_array_interface__["stream"] == 1 and waited == [2]
    # Another thread queues another copy while this one waits.
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: queue(stream))
    a.__dlpack__(stream=2 if on_gpu else None)
    assert a.__cuda_array_interface__["stream"] == 1


def test_another_threads_default_stream_is_waited_for(
    a: gpushm.Array, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same handle is another stream in each thread."""
    waited: list[int | str] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: waited.append(stream))
    real = gpushm._driver.synchronize_all
    monkeypatch.setattr("gpushm._driver.synchronize_all", lambda device=None: real(device) or waited.append("all"))
    if a.device_ptr is None:
        return
    told = {"stream": 2} if a.__dlpack_device__()[0] == 2 else {}
    out = np.empty((4, 6), "f4")
    with ThreadPoolExecutor(1) as thread:
        thread.submit(a.copy_to_host, out, 2).result(60)
        assert thread.submit(lambda: a.__cuda_array_interface__["stream"]).result(60) == 2 and waited == []
        assert a.__cuda_array_interface__["stream"] is None and waited == ["all"]
        thread.submit(a.copy_to_host, out, 2).result(60)
        a.copy_to_host(out, 2)
        a.__dlpack__(**told)
        assert sorted(map(str, waited)) == (["all", "all"] if told else ["2", "all", "all"])


def test_at_most_eight_streams_are_kept_without_a_consumer(a: gpushm.Array, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[int] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: waited.append(stream))
    streams = []
    for number in range(3, 30):
        # The driver does not know these streams, but it is not called for a copy of no bytes.
        streams.append(weakref.ref(stream := Stream(number)))
        a[0:0].copy_to_host(np.empty((0, 6), "f4"), stream)
    del stream
    alive = [s().handle for s in streams if s()]
    assert len(alive) <= 8 and bool(alive) == (a.device_ptr is not None)
    assert {*alive, *waited} == (set(range(3, 30)) if a.device_ptr else set())


def test_closing_the_base_of_a_numpy_array_is_refused(a: gpushm.Array) -> None:
    if a.host_ptr is None:
        return
    n = a.numpy()
    with pytest.raises(gpushm.errors.InUse, match="NumPy"):
        n.base.close()
    with pytest.raises(gpushm.errors.InUse), n.base:
        pass
    assert n[1, 1] == 7


RECORDS = [
    [("a", "f4"), ("b", "i8")], [("x", "u1"), ("y", "?"), ("z", "c16"), ("e", "f2")],
    [("s", "S5"), ("u", "U3"), ("v", "V4")],
    [("m", "f8", (2, 3)), ("in", [("p", "i2"), ("q", "f4", 2)], (2,))], "S7", "U2", "V3",
    np.dtype([("t", "u1"), ("w", "f8")], align=True), [(("title", "name"), "i4")],
]


@pytest.mark.parametrize("fields", RECORDS, ids=str)
def test_a_memoryview_of_records_has_their_fields(host_pool: str, fields: object) -> None:
    plain = np.frombuffer(bytes(range(1, 1 + 3 * np.dtype(fields).itemsize)), np.uint8).copy()
    with gpushm.create("a", (3,), fields, pool=host_pool) as a:
        a.numpy()[...] = np.zeros(3, fields)
        a.numpy().view("u1")[...] = plain % 2  # Booleans and text that NumPy can read.
        with memoryview(a) as view:
            ours, numpys = np.asarray(view), np.asarray(memoryview(np.zeros(3, fields)))
            assert view.itemsize == np.dtype(fields).itemsize and view.shape == (3,)
            assert ours.dtype == numpys.dtype and ours.tobytes() == (plain % 2).tobytes()
            del ours
        with memoryview(a[::2]) as view:
            assert view.strides == (2 * view.itemsize,) and view.format == memoryview(a).format
        a.discard()


def test_a_memoryview_of_dates_is_refused(host_pool: str) -> None:
    with gpushm.create("a", 3, "M8[s]", pool=host_pool) as a, pytest.raises(BufferError, match="no format"):
        memoryview(a)
