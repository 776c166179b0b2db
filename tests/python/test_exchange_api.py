# SPDX-License-Identifier: MIT
"""Many tensors at once: update() and tensors(), with a library that has DLPack's exchange API in C, as PyTorch, and
with one that has not. gpu/test_torch.py has PyTorch.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gpushm
import numpy as np
import pytest
import tensors
from tensors import CUDA, FastTensor, Taken

GPU_POOLS = [p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool")]
on_a_gpu = pytest.mark.skipif(not GPU_POOLS, reason="no GPU, nor our own libcuda")
NAMES = [f"layer.{i}" for i in range(100)]


@pytest.fixture(params=[p.name for p in gpushm.pools() if not p.failed and p.device in (0, None)])
def pool(request: pytest.FixtureRequest) -> str:
    """Each pool but those of a second GPU: the tensors here say that they are on GPU 0."""
    return str(request.param)


class Parameter(FastTensor):
    """As torch.nn.Parameter."""


@pytest.fixture(autouse=True)
def torch(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A module torch of the tests' own."""
    module: Any = ModuleType("torch")
    module.Tensor, module.uint8 = FastTensor, tensors.dtype("uint8")
    module.nn = ModuleType("torch.nn")
    module.nn.Parameter = Parameter
    module.from_dlpack = from_dlpack
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr("gpushm._libraries._said", set())
    monkeypatch.setattr(FastTensor, "stream", 0)
    monkeypatch.setattr(FastTensor, "refused", set())
    FastTensor.streams_asked.clear()
    yield module
    gc.collect()
    assert not tensors.alive


def from_dlpack(found: Any) -> Any:
    """torch.from_dlpack(), of an Array or of a capsule."""
    if not hasattr(found, "__dlpack__"):
        return "capsule", found
    return "array", found.array_name


def model(raw: np.ndarray, start: int | None = None) -> dict[str, FastTensor]:
    """raw: 48 bytes for each. start: their address on a GPU; None: on the host."""
    values = {}
    for i, name in enumerate(NAMES):
        at = raw[48 * i :] if start is None else start + 48 * i
        values[name] = (Parameter if i % 2 else FastTensor)(
            at, (4, 6), "bfloat16", None, (1, 0) if start is None else (CUDA, 0)
        )
        values[name].requires_grad = i % 2 == 1
    return values


def content(b: Any) -> bytes:
    return b"".join(b[name].view("uint16").copy_to_host().tobytes() for name in NAMES)


def test_tensors_are_copied_through_the_c_api_alone(pool: str) -> None:
    raw = tensors.random_bytes(100 * 48)
    values = model(raw)
    with gpushm.create_many("m", values, pool=pool) as b:
        assert content(b) == raw.tobytes()
        b["layer.7"] = 0
        b.update(values)
        assert content(b) == raw.tobytes() and not tensors.alive
        b["layer.7"] = 0
        b["layer.7"] = values["layer.7"]
        assert content(b) == raw.tobytes() and not tensors.alive
        assert not any(v.asked for v in values.values())
        b.discard()


@on_a_gpu
@pytest.mark.parametrize("stream", [None, 1])
def test_streams_are_ordered_once_for_all_tensors(pool: str, stream: int | None) -> None:
    raw = tensors.random_bytes(100 * 48)
    with gpushm.create("theirs", raw.nbytes, pool=GPU_POOLS[0]) as theirs:
        theirs.copy_from_host(raw)
        values = model(raw, theirs.device_ptr)
        with gpushm.create_many("m", {n: ((4, 6), "bfloat16") for n in NAMES}, pool=pool) as b:
            b.update(values, stream=stream)
            asked = [a for v in values.values() for a in v.asked]
            # Without a stream, all streams of the GPU that has the array are waited for.
            assert [a["stream"] for a in asked] == ([] if stream is None and b.device is not None else [1])
            assert content(b) == raw.tobytes()
            b.discard()
        theirs.discard()


@on_a_gpu
def test_a_strided_gpu_tensor_is_made_contiguous_by_its_library(pool: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its library's kernel is faster; what that makes lives until it is copied."""

    def contiguous(self: FastTensor) -> FastTensor:
        return FastTensor(self.raw + 48, self.shape, self.type, None, self.device)

    monkeypatch.setattr(FastTensor, "is_cuda", True, raising=False)
    monkeypatch.setattr(FastTensor, "is_contiguous", lambda self: self.strides is None, raising=False)
    monkeypatch.setattr(FastTensor, "contiguous", contiguous, raising=False)
    turned, whole = tensors.random_bytes(48, 1), tensors.random_bytes(48, 2)
    with gpushm.create("theirs", 96, pool=GPU_POOLS[0]) as theirs:
        theirs.copy_from_host(np.concatenate([turned, whole]))
        t = Parameter(theirs.device_ptr, (4, 6), "bfloat16", (1, 4), (CUDA, 0))
        t.requires_grad = True
        with gpushm.create_many("m", {"t": ((4, 6), "bfloat16")}, pool=pool) as b:
            b.update({"t": t})
            assert b["t"].view("uint16").copy_to_host().tobytes() == whole.tobytes()
            assert not t.asked or b.device is None
            # On a stream nothing that lives so briefly can be copied.
            b.update({"t": t}, stream=1)
            want = np.lib.stride_tricks.as_strided(turned.view("u2"), (4, 6), (2, 8))
            assert np.array_equal(b["t"].view("uint16").copy_to_host(), want)
            b.discard()
        theirs.discard()


def test_unusual_tensors_are_converted_or_refused(pool: str) -> None:
    raw = tensors.random_bytes(96)
    turned = FastTensor(raw, (4, 6), "bfloat16", (1, 4))
    negative = FastTensor(np.arange(24, dtype="f4"), (4, 6), "float32")
    negative.is_negative = True
    negative.resolve_neg = lambda: FastTensor(-negative.raw, (4, 6), "float32")  # type: ignore[attr-defined]
    conjugate = FastTensor(np.arange(24).astype("c8") * 1j, (4, 6), "complex64")
    conjugate.is_conj = lambda: True  # type: ignore[attr-defined]
    conjugate.resolve_conj = lambda: FastTensor(  # type: ignore[attr-defined]
        conjugate.raw.conj(), (4, 6), "complex64"
    )
    loose = FastTensor(tensors.random_bytes(24) * 5, (4, 6), "int4", flags=tensors.PADDED)
    other = FastTensor(np.arange(24, dtype="f4"), (4, 6), "float32")
    arrays = {"turned": "bfloat16", "negative": "float32", "conjugate": "complex64", "loose": "int4", "other": "int32"}
    with gpushm.create_many("m", {n: ((4, 6), t) for n, t in arrays.items()}, pool=pool) as b:
        b.update({"turned": turned, "negative": negative, "conjugate": conjugate, "loose": loose})
        want = np.lib.stride_tricks.as_strided(raw.view("u2"), (4, 6), (2, 8))
        assert np.array_equal(b["turned"].view("uint16").copy_to_host(), want)
        assert np.array_equal(b["negative"].copy_to_host(), -np.arange(24, dtype="f4").reshape(4, 6))
        assert np.array_equal(b["conjugate"].copy_to_host(), conjugate.raw.conj().reshape(4, 6))
        got = b.array((12,), "uint8", offset=b["loose"].offset).copy_to_host()
        assert np.array_equal(got, loose.raw[::2] | loose.raw[1::2] << 4)
        with pytest.raises(TypeError, match=r"other.*same_kind|Cannot cast"):
            b.update({"other": other})
        with pytest.raises(ValueError, match=r"turned.*shape"):
            b.update({"turned": FastTensor(raw, (6, 4), "bfloat16")})
        with pytest.raises(TypeError, match=r"device \(14, 0\)"):
            b.update({"turned": FastTensor(1 << 40, (4, 6), "bfloat16", device=(14, 0))})
        b.discard()


def test_a_tensor_that_the_api_refuses_is_copied_by_dlpack(pool: str) -> None:
    FastTensor.refused = {"bfloat16"}
    raw = tensors.random_bytes(100 * 48)
    values = model(raw)
    with gpushm.create_many("m", values, pool=pool) as b:
        assert content(b) == raw.tobytes() and all(v.asked for v in values.values())
        b.discard()


def test_a_subclass_is_copied_by_its_own_dlpack(pool: str) -> None:
    """It may have no memory of its own."""

    class Wrapper(FastTensor):
        pass

    w = Wrapper(tensors.random_bytes(48), (4, 6), "bfloat16")
    with gpushm.create_many("m", {"w": w}, pool=pool) as b:
        assert w.asked
        b.discard()


def test_a_copy_into_a_closed_or_read_only_array_is_refused(pool: str) -> None:
    raw = tensors.random_bytes(100 * 48)
    values = model(raw)
    b = gpushm.create_many("m", values, pool=pool)
    a = b["layer.0"]
    a.close()
    with pytest.raises(ValueError, match="closed"):
        gpushm._core._copy_of(a, values["layer.0"], FastTensor.__dlpack_c_exchange_api__)  # type: ignore[attr-defined]
    b.publish()
    with pytest.raises(gpushm.errors.ReadOnly):
        b.update(values)
    b.unlink()
    b.close()


# ---- tensors() ----


def test_tensors_are_the_arrays_of_the_buffer(pool: str, torch: Any) -> None:
    raw = tensors.random_bytes(100 * 48)
    with gpushm.create_many("m", model(raw), pool=pool) as b:
        found: dict[str, Taken] = b.tensors(torch.from_dlpack)
        assert list(found) == NAMES == list(b)
        for name, t in found.items():
            assert (t.shape, t.type, t.strides, t.read_only) == ((4, 6), "bfloat16", (6, 1), False)
            assert t.device == (b[name].__dlpack_device__() if b.device is not None else (1, 0))
        if pool == "host":
            assert b"".join(t.bytes() for t in found.values()) == raw.tobytes()
        with pytest.raises(gpushm.errors.InUse, match="100"):
            b.close()
        del found, t
        few = b.tensors(torch.from_dlpack, (n for n in ("layer.7", "layer.3", "layer.7")))
        assert list(few) == ["layer.7", "layer.3"]
        del few
        with pytest.raises(KeyError, match="nothing"):
            b.tensors(torch.from_dlpack, ["layer.1", "nothing"])
        assert b.tensors(torch.from_dlpack, []) == {}
        b.discard()
    with pytest.raises(ValueError, match="closed"):
        b.tensors(torch.from_dlpack, ["layer.1"])


@on_a_gpu
def test_tensors_wait_for_copies(pool: str, torch: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    waited: list[Any] = []
    monkeypatch.setattr("gpushm._driver.synchronize", lambda stream, device=None: waited.append(stream))
    with gpushm.create_many("m", {n: ((4, 6), "bfloat16") for n in NAMES}, pool=pool) as b:
        on_gpu = b.device is not None
        for own, want in ((0, [2]), (2, []), (0x70, [2])):
            b["layer.5"].copy_from_host(bytes(48), stream=2)
            del waited[:], FastTensor.streams_asked[:]
            FastTensor.stream = own
            b.tensors(torch.from_dlpack)
            assert waited == ([] if pool == "host" else want if on_gpu else [2])
            assert FastTensor.streams_asked == ([(CUDA, 0)] if on_gpu else [])
            b["layer.5"]._wait_for_others(None)
        b.discard()


@pytest.mark.parametrize("type", ["float32x4", "record"])
def test_a_refused_tensor_lets_its_buffer_go(pool: str, torch: Any, type: str) -> None:
    FastTensor.refused = {"float32x4"}
    dtype = np.dtype([("x", "f4")], align=True) if type == "record" else type
    with gpushm.create_many("m", {"w": (4, "float32"), "bad": (4, dtype)}, pool=pool) as b:
        with pytest.raises(BufferError, match="refuses" if type != "record" else "record"):
            b.tensors(torch.from_dlpack)
        b.discard()


def test_read_only_tensors_are_warned_of_once(pool: str, torch: Any) -> None:
    with gpushm.create_many("m", {n: ((4, 6), "bfloat16") for n in NAMES}, pool=pool) as b:
        b.publish()
        with pytest.warns(gpushm.errors.ReadOnlyWarning, match="PyTorch") as told:
            found = b.tensors(torch.from_dlpack)
        assert len(told) == 1 and told[0].filename == __file__
        assert all(t.read_only for t in found.values())
        del found
        b.tensors(torch.from_dlpack)  # It is said once.
        b.unlink()


def test_a_library_without_the_api_gets_the_same_arrays(
    pool: str, torch: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with gpushm.create_many("m", {n: ((4, 6), "float32") for n in NAMES}, pool=pool) as b:
        # Any other from_dlpack() gets the Arrays; PyTorch's gets capsules, ordered once.
        assert b.tensors(lambda a: a.array_name) == {n: n for n in NAMES}
        if pool == "host":
            views = b.tensors(np.from_dlpack)
            views["layer.3"][...] = 5
            assert b["layer.3"][0, 0] == 5
            del views
        asked: list[Any] = []
        places: set[Any] = set()
        real = gpushm.Array.__dlpack__

        def watch(self: Any, **words: Any) -> Any:
            asked.append(words.get("stream"))
            places.add(words.get("dl_device", self.__dlpack_device__()))
            return real(self, **words)

        monkeypatch.setattr(torch, "Tensor", type("Older", (), {}))
        monkeypatch.setattr(gpushm.Array, "__dlpack__", watch)
        torch.cuda = ModuleType("torch.cuda")
        torch.cuda.is_initialized = lambda: False
        torch.cuda.current_stream = lambda device: type("Stream", (), {"cuda_stream": 0x70})
        found = b.tensors(torch.from_dlpack)
        assert {kind for kind, _ in found.values()} == {"capsule"}
        assert asked == ([0x70] + [-1] * 99 if b.device is not None else [None] * 100)
        assert places == {b["layer.0"].__dlpack_device__() if b.device is not None else (1, 0)}
        del found
        b.discard()
