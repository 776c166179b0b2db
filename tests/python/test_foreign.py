# SPDX-License-Identifier: MIT
"""Arrays of other libraries, as stand-ins with one protocol each: found in their buffer, or copied."""

from __future__ import annotations

import ctypes
import pickle
import sys
from typing import Any

import gpushm
import ml_dtypes
import numpy as np
import pytest
from copies import to_device


class Interface:
    """Has only the CUDA Array Interface."""

    def __init__(self, array: Any, **changes: Any) -> None:
        self.array, self.changes = array, changes

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.array.__cuda_array_interface__ | self.changes


class Dlpack:
    """Has only DLPack; `legacy`: DLPack before 1.0."""

    def __init__(self, array: Any, legacy: bool = False) -> None:
        self.array, self.legacy = array, legacy

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()

    def __dlpack__(self, **words: Any) -> Any:
        if self.legacy and set(words) - {"stream"}:
            raise TypeError("unexpected keyword")
        return self.array.__dlpack__(**words)


def legacy(array: Any) -> Dlpack:
    return Dlpack(array, legacy=True)


GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool")]
PROTOCOLS = [Interface, Dlpack, legacy]
on_a_gpu = pytest.mark.skipif(not GPU_POOLS, reason="no GPU, nor our own libcuda")
LAYOUTS = {
    "whole": lambda a: a,
    "sliced": lambda a: a[1:5, 2:],
    "stepped": lambda a: a[::2, ::3],
    "reversed": lambda a: a[::-1, ::-1],
    "transposed": lambda a: a.T,
    "none": lambda a: a[3:3],
}


@pytest.fixture(params=GPU_POOLS)
def gpu_pool(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def content(dtype: Any = "float32") -> np.ndarray:
    return np.arange(42).reshape(7, 6).astype(dtype)


@on_a_gpu
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.__name__)
def test_an_array_of_another_library_is_copied(gpu_pool: str, protocol: Any, layout: str) -> None:
    want, view = content(), LAYOUTS[layout]
    with gpushm.create("theirs", want.shape, want.dtype, pool=gpu_pool) as theirs:
        theirs.copy_from_host(want)
        source = view(theirs)
        if layout == "reversed" and protocol is not Interface:
            with pytest.raises(BufferError, match="negative stride"):
                to_device(protocol(source), "a", pool=gpu_pool)
            del source
            return
        with to_device(protocol(source), "a", pool=gpu_pool) as a:
            assert (a.shape, a.dtype) == (view(want).shape, want.dtype)
            assert np.array_equal(a.copy_to_host(), view(want))
            a.copy_from_host(np.zeros(a.shape, a.dtype))
            assert gpushm.numba.to_device(protocol(source), to=a) is a
            assert np.array_equal(a.copy_to_host(), view(want))
        # By way of the host where the layouts differ, and converted where the types differ.
        with gpushm.create("b", view(want).shape, "float64", order="F", pool="host") as b:
            b.copy_to_device(protocol(source))
            assert np.array_equal(b.copy_to_host(), view(want))
        del source


@on_a_gpu
@pytest.mark.parametrize("dtype", ["bool", "int64", "complex64", "float16", "bfloat16", "float8_e5m2", "record"])
def test_a_copy_from_another_library_keeps_its_type(gpu_pool: str, dtype: str) -> None:
    if dtype == "record":
        want = np.zeros(5, np.dtype([("x", "f4"), ("y", "i4")]))
        want["x"] = np.arange(5)
    else:
        want = content(getattr(ml_dtypes, dtype, dtype))
    with gpushm.create("theirs", want.shape, want.dtype, pool=gpu_pool) as theirs:
        theirs.copy_from_host(want)
        for protocol in (Interface, Dlpack):
            if (protocol is Dlpack and dtype == "record") or (protocol is Interface and "float8" in dtype):
                continue
            if protocol is Interface and dtype == "bfloat16":
                continue  # It has no word for it: test_a_nameless_type_is_raw_bytes_unless_dlpack_names_it.
            with to_device(protocol(theirs), "a", pool=gpu_pool) as a:
                assert a.dtype == want.dtype and a.copy_to_host().tobytes() == want.tobytes()


@on_a_gpu
def test_dlpack_is_used_where_the_cuda_array_interface_raises(gpu_pool: str) -> None:
    class Raises(Dlpack):
        @property
        def __cuda_array_interface__(self) -> dict[str, Any]:
            raise KeyError("float8_e5m2")

    with to_device(content(), "a", pool=gpu_pool) as a:
        found = gpushm.as_array(Raises(a))
        assert gpushm.numba.is_cuda_array(Raises(a)) and found.offset == 0
        del found


def test_an_exporter_is_told_the_stream(pool: str) -> None:
    told: list[dict[str, Any]] = []

    class Tells(Dlpack):
        def __dlpack__(self, **words: Any) -> Any:
            told.append(words)
            return super().__dlpack__(**words)

    with gpushm.create("a", 4, pool=pool) as a:
        gpushm.as_array(Tells(a)).close()
        assert told == [{"max_version": (1, 1)} | ({"stream": 1} if pool in GPU_POOLS else {})]


@on_a_gpu
def test_a_nameless_type_is_raw_bytes_unless_dlpack_names_it(gpu_pool: str) -> None:
    with gpushm.create("a", 4, "bfloat16", pool=gpu_pool) as a:
        assert gpushm.as_array(Interface(a)).dtype == np.dtype("V2")
        both = Dlpack(a)
        both.__class__ = type("Both", (Dlpack, Interface), {"changes": {}})
        assert gpushm.as_array(both).dtype == ml_dtypes.bfloat16


@on_a_gpu
def test_queued_work_of_an_old_interface_is_ordered_by_dlpack(gpu_pool: str) -> None:
    streams: list[Any] = []

    class Both(Interface):
        __dlpack_device__ = Dlpack.__dlpack_device__

        def __dlpack__(self, **words: Any) -> Any:
            streams.append(words.get("stream"))
            return self.array.__dlpack__(**words)

    with to_device(content(), "a", pool=gpu_pool) as a:
        # Version 2 has no stream, so that only DLPack orders the exporter's work before the copy.
        with to_device(Both(a, version=2), "b", pool=gpu_pool) as b:
            assert np.array_equal(b.copy_to_host(), content())
        assert set(streams) == {1}
        streams.clear()
        with to_device(Both(a), "c", pool=gpu_pool):
            assert streams == []


@on_a_gpu
def test_the_interface_tells_the_stream_of_the_last_copy(gpu_pool: str) -> None:
    want = content()
    with (
        to_device(want, "theirs", pool=gpu_pool) as theirs,
        gpushm.create("a", want.shape, want.dtype, pool=gpu_pool) as a,
    ):
        assert a.__cuda_array_interface__["stream"] is None
        a.copy_to_device(Interface(theirs, stream=2), stream=1)
        assert a.__cuda_array_interface__["stream"] == 1
        a.copy_to_device(theirs, stream=2)
        assert a.__cuda_array_interface__["stream"] == 2
        with gpushm.numba.auto_synchronize(2) as stream:
            a.copy_from_host(want * 2, stream=stream)
        assert np.array_equal(a.copy_to_host(), want * 2)
        with pytest.raises(KeyError), gpushm.numba.auto_synchronize():
            raise KeyError


@on_a_gpu
def test_another_librarys_stream_is_waited_for(gpu_pool: str) -> None:
    try:
        calls = ctypes.CDLL("libcuda.so.1").fakecuda_calls
    except AttributeError:
        pytest.skip("calls are counted by our own libcuda")
    with to_device(content(), "a", pool=gpu_pool) as a, gpushm.create_like("b", a, pool=gpu_pool) as b:

        def waits(source: Any) -> int:
            before = calls(b"cuStreamSynchronize")
            b.copy_to_device(source, stream=1)
            return calls(b"cuStreamSynchronize") - before

        with gpushm.numba.auto_synchronize(2):
            before = calls(b"cuStreamSynchronize")
        assert calls(b"cuStreamSynchronize") == before + 1
        # From device to device, and by way of the host.
        assert waits(Interface(a, stream=2)) == waits(Interface(a)) + 1
        assert waits(Interface(a[::-1], stream=2)) == waits(Interface(a[::-1])) + 1


class Viewed:
    """An array of a library, with a NumPy view of its memory."""

    def __init__(self, array: np.ndarray) -> None:
        self.__array_interface__, self.array = array.__array_interface__, array


@pytest.mark.parametrize(
    ("source", "waits"),
    [
        (np.arange(42.0, dtype="f4").reshape(7, 6), False),
        (np.arange(84.0, dtype="f4").reshape(7, 12)[:, ::2], False),
        (np.arange(6.0, dtype="f4"), False),  # Broadcast: the caller's memory, seven times.
        (Viewed(np.arange(6.0, dtype="f4")), False),
        (bytes(168), False),
        (np.arange(42).reshape(7, 6).astype("f2"), True),
        ([[1.5] * 6] * 7, True),
        (2.5, True),
    ],
    ids=["array", "strided", "broadcast", "viewed", "bytes", "converted", "list", "scalar"],
)
def test_a_queued_copy_from_temporary_memory_is_waited_for(
    pool: str, source: Any, waits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that uses the host's page tables may read pageable memory after the call has returned."""
    waited: list[int | None] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: waited.append(stream))
    with gpushm.create("a", (7, 6), "float32", pool=pool) as a:
        a.copy_from_host(source)
        assert waited == []
        a.copy_from_host(source, stream=2)
        assert waited == ([2] if waits and a.device_ptr else [])
        a.copy_to_device(source, stream=2) if not isinstance(source, bytes) else None
        assert len(waited) == (2 if waits and a.device_ptr else 0)
    if isinstance(source, list):
        with to_device(source, "a", stream=2, pool=pool) as a:
            assert len(waited) == (3 if a.device_ptr else 0)


@on_a_gpu
@pytest.mark.parametrize("protocol", [lambda a: a, *PROTOCOLS])
def test_an_overlapping_copy_goes_by_way_of_the_host(gpu_pool: str, protocol: Any) -> None:
    """CUDA does not define such a copy."""
    with gpushm.create("a", 16, "int32", pool=gpu_pool) as a:
        for to, source in ((slice(1, 16), slice(0, 15)), (slice(0, 12), slice(4, 16)), (slice(8, 16), slice(0, 8))):
            want = np.arange(16, dtype="int32")
            a.copy_from_host(want)
            before = copies()
            a[to].copy_to_device(protocol(a[source]))
            # By the host, unless nothing overlaps.
            assert copies() - before == (to.start == 8)
            want[to] = want[source].copy()
            assert np.array_equal(a.copy_to_host(), want)


def copies() -> int:
    """Copies from a device to a device; 0 without our own libcuda."""
    try:
        return int(ctypes.CDLL("libcuda.so.1").fakecuda_calls(b"cuMemcpyAsync"))
    except AttributeError:
        pytest.skip("calls are counted by our own libcuda")


def test_a_copy_within_a_buffer_reads_the_old_contents(pool: str) -> None:
    want = np.arange(1 << 16).astype("uint8")
    for to, source in (
        (np.s_[1:], np.s_[:-1]), (np.s_[::-1], np.s_[:]), (np.s_[1::2], np.s_[: 1 << 15]), (np.s_[:-1], np.s_[1:])
    ):
        with to_device(want, "a", pool=pool) as a:
            a[to].copy_to_device(a[source])
            expected = want.copy()
            expected[to] = want[source]
            assert np.array_equal(a.copy_to_host(), expected)


@on_a_gpu
def test_a_copy_to_a_read_only_array_is_refused(gpu_pool: str) -> None:
    made = [to_device(content(), name, pool=gpu_pool) for name in ("a", "b")]
    with made[0] as a, made[1] as b:
        a.publish()
        for source in (content(), b, Interface(b), Dlpack(b)):
            with pytest.raises(gpushm.errors.ReadOnly):
                a.copy_to_device(source)
        gpushm.unlink("a")


def test_a_copy_between_different_shapes_is_refused(pool: str) -> None:
    with gpushm.create("a", (3, 4), pool=pool) as a, gpushm.create("b", (4, 3), pool=pool) as b:
        with pytest.raises(ValueError, match="shape"):
            a.copy_to_device(b)
        if pool in GPU_POOLS:
            with pytest.raises(ValueError, match="shape"):
                a.copy_to_device(Dlpack(b))


@on_a_gpu
@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name != "none"])
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda p: p.__name__)
def test_an_array_of_another_library_is_found_in_its_buffer(gpu_pool: str, protocol: Any, layout: str) -> None:
    want, view = content(), LAYOUTS[layout]
    with to_device(want, "a", pool=gpu_pool) as a, to_device(want, "b", pool=gpu_pool):
        if layout == "reversed" and protocol is not Interface:
            with pytest.raises(BufferError, match="negative stride"):
                gpushm.as_array(protocol(view(a)))
            return
        found = gpushm.as_array(protocol(view(a)))
        assert found.buffer is a.buffer and found.device_ptr == view(a).device_ptr
        assert (found.shape, found.strides, found.dtype) == (view(a).shape, view(a).strides, want.dtype)
        found[0, 0] = 77
        view(want)[0, 0] = 77
        assert np.array_equal(a.copy_to_host(), want)
        del found


def test_a_numpy_view_is_found_in_its_buffer() -> None:
    want = content()
    with to_device(want, "a", pool="host") as a:
        n = a.numpy()
        found = gpushm.as_array(n[2:, ::-2])
        assert found.buffer is a.buffer and np.array_equal(found.copy_to_host(), want[2:, ::-2])
        del found, n
        a.publish()
        with gpushm.open("a") as reader:
            n = reader.numpy()[1:]
            found = gpushm.as_array(n)
            assert found.readonly and pickle.loads(pickle.dumps(found))[0, 0] == want[1, 0]
            del found, n
        gpushm.unlink("a")


@pytest.mark.parametrize("foreign", [np.zeros(4), [1, 2, 3], 5], ids=["array", "list", "number"])
def test_memory_of_no_buffer_is_refused(foreign: Any) -> None:
    with gpushm.create("a", 4096, pool="host") as a:
        assert gpushm.as_array(a) is a
        with pytest.raises(TypeError, match=r"to_device\(obj\)"):
            gpushm.as_array(foreign)


def test_is_cuda_array_knows_the_arrays_that_a_gpu_reaches(pool: str) -> None:
    with gpushm.create("a", 4, pool=pool) as a:
        reached = a.kind != "host"
        assert gpushm.numba.is_cuda_array(a) == reached
        assert gpushm.numba.is_cuda_array(Dlpack(a)) == reached
    assert not any(map(gpushm.numba.is_cuda_array, (np.zeros(3), None, 7, "a")))


def test_torchs_types_work_without_ml_dtypes(host_pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class TorchType:
        """Has a str() like torch.dtype's."""

        def __init__(self, name: str) -> None:
            self.name = name

        def __str__(self) -> str:
            return f"torch.{self.name}"

    TorchType.__module__ = "torch"
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    for name in ("float32", "int64", "bool", "bfloat16", "float8_e4m3fn"):
        with gpushm.create("a", 4, TorchType(name), pool=host_pool) as a:
            assert a.dtype_name == name
    with pytest.raises(TypeError, match="qint8"):
        gpushm.create("a", 4, TorchType("qint8"), pool=host_pool)


def test_a_scalar_a_record_and_a_list_are_copied(pool: str) -> None:
    record = np.array((1, 2.5), [("a", "i4"), ("b", "f4")])[()]
    for scalar, dtype in ((3.5, "float64"), (7, "int64"), (np.int8(2), "int8"), (True, "bool"), (2j, "complex128")):
        with to_device(scalar, "a", pool=pool) as a:
            assert (a.shape, a.dtype, a[()]) == ((), np.dtype(dtype), scalar)
    with to_device(record, "a", pool=pool) as a:
        assert a.dtype == record.dtype and a[()] == record
    with to_device([[1, 2], [3, 4]], "a", pool=pool) as a:
        assert a.copy_to_host().tolist() == [[1, 2], [3, 4]]
    with to_device(scalar, pool=pool) as a:
        assert a[()] == scalar
