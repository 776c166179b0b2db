# SPDX-License-Identifier: MIT
"""Tensors of other libraries are copied into Arrays: every dtype of DLPack, from the host or a GPU, strided as they
are, with a gradient or not; one at a time, or many with one wait.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from typing import Any

import gpushm
import numpy as np
import pytest
import tensors
from copies import to_device
from tensors import CUDA, PADDED, TYPES, Tensor

GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool")]
on_a_gpu = pytest.mark.skipif(not GPU_POOLS, reason="no GPU, nor our own libcuda")


@pytest.fixture(autouse=True)
def tensors_are_given_back() -> Iterator[None]:
    yield
    gc.collect()
    assert not tensors.alive


@pytest.fixture(params=["with ml_dtypes", "without"])
def ml_dtypes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether NumPy has names for the unusual types. Once ml_dtypes is imported, NumPy keeps them."""
    real = gpushm._dtype.decode
    unusual = ("bfloat", "float8", "complex32", "float32x4")
    if request.param == "without":
        monkeypatch.setattr(
            "gpushm._dtype.decode", lambda name, descr: name if name.startswith(unusual) else real(name, descr)
        )
    return bool(request.param == "with ml_dtypes")


def size_of(type: str, shape: tuple[int, ...]) -> int:
    _, bits, lanes = TYPES[type]
    return (int(np.prod(shape)) * bits * lanes + 7) // 8


def bytes_of(array: Any) -> bytes:
    """The bytes of the whole buffer's array."""
    return array.buffer.array((array.nbytes,), "uint8").copy_to_host().tobytes()


WAYS = {
    "copy_from_host": lambda a, t: a.copy_from_host(t),
    "copy_to_device": lambda a, t: a.copy_to_device(t),
    "setitem": lambda a, t: a.__setitem__(..., t),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("type", TYPES)
def test_every_type_of_dlpack_is_copied_unchanged(pool: str, type: str, way: str, ml_dtypes: bool) -> None:
    raw = tensors.random_bytes(size_of(type, (4, 8)))
    t = Tensor(raw, (4, 8), type)
    t.requires_grad = type.startswith(("float", "bfloat"))
    with gpushm.create("a", (4, 8), type, pool=pool) as a:
        WAYS[way](a, t)
        assert bytes_of(a) == raw.tobytes()
    if way == "copy_to_device":
        with to_device(t, pool=pool) as a:
            assert (a.shape, a.dtype_name, bytes_of(a)) == ((4, 8), type, raw.tobytes())


@pytest.mark.parametrize("type", ["bfloat16", "float8_e4m3fn", "complex32", "float32", "float4_e2m1fnx2", "bool"])
@pytest.mark.parametrize("strides", [(1, 6), (20, 1), (2, 50), (0, 1), (0, 0)], ids=str)
def test_strides_are_followed(pool: str, type: str, strides: tuple[int, int]) -> None:
    _, bits, lanes = TYPES[type]
    item, raw = bits * lanes // 8, tensors.random_bytes(400 * 4)
    t = Tensor(raw, (6, 8), type, strides, offset=16)
    want = np.lib.stride_tricks.as_strided(
        raw[16:].view(f"V{item}"), (6, 8), (strides[0] * item, strides[1] * item)
    )
    with gpushm.create("a", (6, 8), type, pool=pool) as a, gpushm.create("b", (9, 8, 6), type, pool=pool) as b:
        a.copy_from_host(t)
        assert bytes_of(a) == want.tobytes()
        b[2].T[...] = t
        b[3:, ::-1] = Tensor(raw, (8, 6), type)  # Broadcast.
        got = np.frombuffer(bytes_of(b), f"V{item}").reshape(9, 8, 6)
        assert got[2].tobytes() == want.T.tobytes()
        one = raw[: 48 * item].view(f"V{item}").reshape(8, 6)[::-1]
        assert all(got[i].tobytes() == one.tobytes() for i in range(3, 9))


@pytest.mark.parametrize("type", ["float4_e2m1fn", "float6_e2m3fn", "int2", "uint4"])
def test_padded_elements_are_packed(pool: str, type: str) -> None:
    bits = TYPES[type][1]
    loose = np.random.default_rng(2).integers(0, 1 << bits, 24, np.uint8)
    packed = sum(int(x) << bits * i for i, x in enumerate(loose)).to_bytes(24 * bits // 8, "little")
    with gpushm.create("a", (4, 6), type, pool=pool) as a:
        a.copy_from_host(Tensor(loose, (4, 6), type, flags=PADDED))
        assert bytes_of(a) == packed
    # ml_dtypes uses a byte for each, too.
    import ml_dtypes

    for found in (loose.view(getattr(ml_dtypes, type)).reshape(4, 6),) if hasattr(ml_dtypes, type) else ():
        with to_device(found, pool=pool) as a:
            assert (a.dtype_name, bytes_of(a)) == (type, packed)


def test_packed_elements_with_strides_are_refused(pool: str) -> None:
    t = Tensor(tensors.random_bytes(100), (4, 6), "float4_e2m1fn", (12, 2))
    with gpushm.create("a", (4, 6), "float4_e2m1fn", pool=pool) as a:
        with pytest.raises(TypeError, match="contiguous"):
            a.copy_from_host(t)
        a.discard()


@pytest.mark.parametrize("kind", [8, 10, 14])
def test_memory_of_an_unknown_device_is_refused(pool: str, kind: int) -> None:
    with gpushm.create("a", 4, pool=pool) as a:
        with pytest.raises(TypeError, match=rf"device \({kind}, 0\)"):
            a.copy_from_host(Tensor(1 << 40, (4,), "uint8", device=(kind, 0)))
        a.discard()


def test_a_tensor_of_old_dlpack_is_copied(pool: str) -> None:
    raw = tensors.random_bytes(8)
    with to_device(tensors.LegacyTensor(raw, (4,), "bfloat16"), pool=pool) as a:
        assert (a.dtype_name, bytes_of(a)) == ("bfloat16", raw.tobytes())


class Older(Tensor):
    """PyTorch before 2.9 has no DLPack code for float8, but views of other types."""

    def __dlpack__(self, **words: Any) -> Any:
        if self.type.startswith("float8"):
            raise BufferError("float8 types are not supported by dlpack")
        return super().__dlpack__(**words)

    def element_size(self) -> int:
        return 1

    def view(self, type: Any) -> Tensor:
        return Tensor(self.raw, self.shape, type.name, self.strides)


def test_a_type_that_its_library_does_not_export_is_copied(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Torch:
        Tensor = Older
        uint8 = tensors.dtype("uint8")

    monkeypatch.setitem(sys.modules, "torch", Torch)  # type: ignore[arg-type]
    raw = tensors.random_bytes(40)
    with to_device(Older(raw, (4, 5), "float8_e5m2", (1, 4)), pool=pool) as a:
        assert a.dtype_name == "float8_e5m2"
        assert bytes_of(a) == np.ascontiguousarray(raw[:20].reshape(5, 4).T).tobytes()


class Conjugate(Tensor):
    """A tensor that is the conjugate of what is in memory."""

    def is_conj(self) -> bool:
        return True

    def resolve_conj(self) -> Tensor:
        return Tensor(np.conj(self.raw), self.shape, self.type, self.strides)


@pytest.mark.parametrize("stream", [None, 1])
def test_a_conjugate_is_resolved_before_it_is_copied(pool: str, stream: int | None) -> None:
    raw = np.arange(12).astype("c8") * (1 + 2j)
    with gpushm.create("a", (3, 4), "complex64", pool=pool) as a:
        a.copy_from_host(Conjugate(raw, (3, 4), "complex64"), stream=stream)
        assert a.copy_to_host().tolist() == raw.conj().reshape(3, 4).tolist()


def test_a_type_without_a_dlpack_code_is_copied(pool: str) -> None:
    """JAX has int4, and NumPy's arrays of it, but no DLPack code for it."""
    ml_dtypes = pytest.importorskip("ml_dtypes")

    class Jax(Tensor):
        def __array__(self, *args: Any, **words: Any) -> Any:
            return self.raw.view(ml_dtypes.int4).reshape(self.shape)

        def __dlpack__(self, **words: Any) -> Any:
            raise RuntimeError("UNIMPLEMENTED: XLA type S4 has no DLPack equivalent")

    with gpushm.create("a", (2, 4), "int4", pool=pool) as a:
        a.copy_from_host(Jax(np.arange(8, dtype="u1"), (2, 4), "int4"))
        assert bytes_of(a) == bytes.fromhex("10325476")


@on_a_gpu
@pytest.mark.parametrize("type", ["bfloat16", "float8_e4m3fn", "complex32", "float32"])
def test_a_tensor_on_a_gpu_is_copied_unchanged(pool: str, type: str, ml_dtypes: bool) -> None:
    raw = tensors.random_bytes(size_of(type, (6, 8)))
    item = size_of(type, ())
    with gpushm.create("theirs", raw.nbytes, pool=GPU_POOLS[0]) as theirs:
        theirs.copy_from_host(raw)
        for shape, strides in (((6, 8), None), ((8, 6), (1, 8)), ((3, 4), (16, 2))):
            t = Tensor(theirs.device_ptr, shape, type, strides, device=(CUDA, 0))
            t.requires_grad = True
            steps = tuple(s * item for s in strides or (shape[1], 1))
            want = np.lib.stride_tricks.as_strided(raw.view(f"V{item}"), shape, steps).tobytes()
            with to_device(t, pool=pool) as a:
                assert (a.shape, a.dtype_name, bytes_of(a)) == (shape, type, want)
                a.copy_from_host(bytes(a.nbytes))
                a[...] = t
                assert bytes_of(a) == want
            assert t.asked[-1]["stream"] == 1
        theirs.discard()


def test_types_that_differ_are_converted_or_refused(pool: str, ml_dtypes: bool) -> None:
    t = Tensor(np.array([1.5, -2, 0, 3], "f4").view("u2")[1::2].copy(), (4,), "bfloat16")
    f = Tensor(np.array([1.5, -2, 0, 3], "f4"), (4,), "float32")
    with gpushm.create("a", 4, "float32", pool=pool) as a, gpushm.create("b", 4, "bfloat16", pool=pool) as b:
        if ml_dtypes:
            a[...] = t
            b[...] = f
            assert a.copy_to_host().tolist() == b.copy_to_host().tolist() == [1.5, -2, 0, 3]
        else:
            for array, value in ((a, t), (b, f)):
                with pytest.raises(TypeError, match=r"convert it first.*ml_dtypes"):
                    array[...] = value
        with pytest.raises(ValueError, match="shape"):
            a.copy_from_host(Tensor(np.zeros(3, "f4"), (3,), "float32"))
        with pytest.raises(ValueError, match="shape"):
            a[...] = Tensor(np.zeros(8, "f4"), (2, 4), "float32")


def test_a_copy_into_a_read_only_array_is_refused(pool: str) -> None:
    with gpushm.create("a", 4, "bfloat16", pool=pool) as a:
        a.publish()
        for way in WAYS.values():
            with pytest.raises(gpushm.errors.ReadOnly):
                way(a, Tensor(tensors.random_bytes(8), (4,), "bfloat16"))
        gpushm.unlink("a")


# ---- many arrays ----


def model(device: Any = None) -> dict[str, Any]:
    """What a state_dict() has: parameters, buffers, a scalar; arrays and lists, too."""
    weight = Tensor(tensors.random_bytes(96, 1), (8, 6), "bfloat16", (1, 8))
    weight.requires_grad = True
    return {
        "weight": weight,
        "bias": Tensor(np.arange(6, dtype="f4"), (6,), "float32"),
        "steps": np.array(77),
        "list": [[1.5, 2.5], [3.5, 4.5]],
        "number": 5,
        "empty": np.zeros((0, 3), "f4"),
        "record": np.zeros(2, [("x", "f4"), ("y", "i8")]),
    }


def check_model(b: Any) -> None:
    want = np.ascontiguousarray(tensors.random_bytes(96, 1).view("u2").reshape(6, 8).T)
    assert (b["weight"].dtype_name, bytes_of(b["weight"].view("uint16"))) is not None
    assert np.array_equal(b["weight"].view("uint16").copy_to_host(), want)
    assert b["bias"].copy_to_host().tolist() == [0, 1, 2, 3, 4, 5]
    assert b["steps"][()] == 77 and b["number"][()] == 5
    assert b["list"].copy_to_host().tolist() == [[1.5, 2.5], [3.5, 4.5]]
    assert b["empty"].shape == (0, 3) and b["record"].shape == (2,)


def test_create_many_copies_the_values(pool: str) -> None:
    for maker in (gpushm.create_many, gpushm.types.Connection().create_many):
        with maker("m", model(), pool=pool) as b:
            check_model(b)
            with gpushm.create_many("copy", b, pool="host") as copy:
                check_model(copy)
                copy.discard()
            b.discard()


def test_a_description_makes_an_array_without_a_value(pool: str) -> None:
    class Described:
        shape, dtype = (2, 3), "float32"

    class Meta(Tensor):
        is_meta = True

        def __dlpack_device__(self) -> tuple[int, int]:
            raise ValueError("Unknown device type meta for Dlpack")

    arrays = {"a": ((2, 3), "float32"), "b": Described(), "c": Meta(None, (2,), "bfloat16"), "d": np.ones(3)}
    with gpushm.create_many("m", arrays, pool=pool) as b:
        assert [(x.shape, x.dtype_name) for x in b.values()] == [
            ((2, 3), "float32"), ((2, 3), "float32"), ((2,), "bfloat16"), ((3,), "float64")
        ]  # fmt: skip
        assert b["d"].copy_to_host().tolist() == [1, 1, 1]
        b.discard()


def test_a_value_that_cannot_be_copied_leaves_nothing(pool: str) -> None:
    sick = Tensor(1 << 40, (4,), "uint8", device=(14, 0))
    with pytest.raises(TypeError, match="sick"):
        gpushm.create_many("m", {"well": np.ones(3), "sick": sick}, pool=pool)
    with pytest.raises(gpushm.errors.NotFound) as raised:
        gpushm.open("m")
    assert "publish" not in str(raised.value)
    with pytest.raises(TypeError, match="what"):
        gpushm.create_many("m", {"what": object()}, pool=pool)
    for row in ((), (1, 2, 3), (1.0,)):
        with pytest.raises(TypeError, match=r"array 'row'.*\(shape, dtype\)"):
            gpushm.create_many("m", {"row": row}, pool=pool)


def test_arrays_of_a_buffer_can_be_assigned_and_updated(pool: str) -> None:
    with gpushm.create_many("m", model(), pool=pool) as b:
        b["bias"] = Tensor(np.full(6, 9, "f4"), (6,), "float32")
        assert b["bias"].copy_to_host().tolist() == [9] * 6
        b["bias"] = 2
        b["list"] = [7, 8]
        assert b["bias"].copy_to_host().tolist() == [2] * 6 and b["list"].copy_to_host().tolist() == [[7, 8]] * 2
        with pytest.raises(KeyError):
            b["nothing"] = 1
        b.update(model())
        check_model(b)
        b.update({"bias": np.arange(6, dtype="i4")})  # Converted.
        check_model(b)
        for values, error in (({"bias": 1, "nothing": 1}, KeyError), ({"bias": np.zeros(5, "f4")}, ValueError)):
            with pytest.raises(error):
                b.update(values)
        check_model(b)
        b.discard()


def test_an_update_with_a_list_that_does_not_fit_changes_nothing(pool: str) -> None:
    with gpushm.create_many("m", {"x": np.arange(6).reshape(2, 3), "y": 1.5}, pool=pool) as b:
        zeros = {"x": np.zeros((2, 3), "i8"), "y": np.zeros(())}
        for wrong in ({"y": [1, 2, 3]}, {"x": [1, 2, 3]}, {"x": [[1, 2, 3], [4]]}):
            with pytest.raises(ValueError, match="array '"):
                b.update(zeros | wrong)
            assert b["x"].tolist() == [[0, 1, 2], [3, 4, 5]] and b["y"][()] == 1.5
        b.update({"x": [[1, 1, 1], [2, 2, 2]], "y": 2})
        assert b["x"].tolist() == [[1, 1, 1], [2, 2, 2]] and b["y"][()] == 2
        b.discard()


@on_a_gpu
def test_many_copies_are_waited_for_once(pool: str) -> None:
    try:
        calls = ctypes.CDLL("libcuda.so.1").fakecuda_calls
    except AttributeError:
        pytest.skip("calls are counted by our own libcuda")
    names = [f"layer.{i}" for i in range(100)]
    raw = tensors.random_bytes(100 * 48)
    # Between two GPUs each copy is waited for.
    with gpushm.create("theirs", raw.nbytes, pool=pool if pool in GPU_POOLS else GPU_POOLS[0]) as theirs:
        theirs.copy_from_host(raw)
        values = {
            name: Tensor(theirs.device_ptr + 48 * i, (4, 6), "bfloat16", device=(CUDA, theirs.device))
            for i, name in enumerate(names)
        }
        before = calls(b"cuStreamSynchronize")
        with gpushm.create_many("m", values, pool=pool) as b:
            assert calls(b"cuStreamSynchronize") - before == 1
            got = b"".join(b[name].view("uint16").copy_to_host().tobytes() for name in names)
            assert got == raw.tobytes()
            before = calls(b"cuStreamSynchronize")
            b.update(values)
            assert calls(b"cuStreamSynchronize") - before == 1
            b.update(values, stream=1)
            assert calls(b"cuStreamSynchronize") - before == (2 if pool == "host" else 1)
            b.discard()
        theirs.discard()
