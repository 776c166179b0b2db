# SPDX-License-Identifier: MIT
"""Tensors of PyTorch are copied in as they are: every dtype, CPU or GPU, parameters, views, conjugates, models."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import gpushm
import pytest
from copies import to_device

torch = pytest.importorskip("torch")
from libraries import MY_POOLS, Torch  # noqa: E402

Torch()

POOLS = [p.name for p in gpushm.pools() if not p.failed]
DEVICES = ["cpu"] + ["cuda"] * torch.cuda.is_available()
NAMES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
NAMES += ["float16", "float32", "float64", "bfloat16", "complex32", "complex64", "complex128", "float8_e4m3fn"]
NAMES += ["float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"]
DTYPES = [name for name in NAMES if hasattr(torch, name)]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda t: t,
    "transposed": lambda t: t.T,
    "stepped": lambda t: t[::2, 1::3],
    "expanded": lambda t: t[:1].expand(5, -1),
    "none": lambda t: t[3:3],
}


def tensor(dtype: str, device: str, shape: tuple[int, ...] = (8, 12)) -> Any:
    """Bytes that are a valid number of any type."""
    size = torch.empty((), dtype=getattr(torch, dtype)).element_size()
    raw = torch.randint(0, 2, (*shape[:-1], shape[-1] * size), dtype=torch.uint8, device=device)
    return raw.view(getattr(torch, dtype))


def bytes_of(t: Any) -> bytes:
    if t.numel() == 0:
        return b""
    # On the CPU as bytes: not every type has a kernel that makes it contiguous.
    t = t.detach().cpu()
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[t.element_size()]
    return bytes(t.view(words).contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())


def ours(a: Any) -> bytes:
    return bytes(a.buffer.array((a.nbytes,), "uint8", offset=a.offset).copy_to_host().tobytes())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pool", POOLS)
def test_every_tensor_is_copied_unchanged(pool: str, device: str, dtype: str, layout: str) -> None:
    whole = tensor(dtype, device)
    if whole.is_floating_point():
        whole = torch.nn.Parameter(whole)
    t = LAYOUTS[layout](whole)
    want = bytes_of(t)
    with to_device(t, pool=pool) as a:
        assert (a.shape, a.dtype_name) == (tuple(t.shape), dtype.replace("_x2", "x2"))
        assert ours(a) == want
        for way in (a.copy_from_host, a.copy_to_device, lambda t: a.__setitem__(..., t)):
            a.copy_from_host(bytes(a.nbytes))
            way(t)
            assert ours(a) == want
    with gpushm.create_many(None, {"t": t, "described": t.to("meta")}, pool=pool) as b:
        assert ours(b["t"]) == want and b["described"].shape == tuple(t.shape)
        b["t"] = t
        b.update({"t": t})
        assert ours(b["t"]) == want


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pool", POOLS)
def test_a_conjugate_is_resolved_before_it_is_copied(pool: str, device: str) -> None:
    z = torch.randn(8, 6, dtype=torch.complex64, device=device)
    for t in (z.conj(), z.conj().imag, z.conj().T, z[1:].conj()):
        with to_device(t, pool=pool) as a:
            assert ours(a) == bytes_of(t.resolve_conj().resolve_neg().contiguous())
        # Many at once are read in another way.
        with gpushm.create_many(None, {"t": t, "again": t}, pool=pool) as b:
            assert ours(b["t"]) == ours(b["again"]) == bytes_of(t.resolve_conj().resolve_neg().contiguous())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("pool", POOLS)
def test_a_model_is_copied_unchanged(pool: str, device: str) -> None:
    layer = torch.nn.TransformerEncoderLayer(64, 4, 128, device=device, dtype=torch.bfloat16)
    model = torch.nn.TransformerEncoder(layer, 3)
    for values in (model.state_dict(), dict(model.named_parameters())):
        with gpushm.create_many(None, values, pool=pool) as b:
            assert list(b) == list(values)
            assert all(ours(b[name]) == bytes_of(t) for name, t in values.items())
            with torch.no_grad():
                for t in values.values():
                    t.add_(1)
            b.update(values)
            assert all(ours(b[name]) == bytes_of(t) for name, t in values.items())


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("pool", MY_POOLS)
def test_a_copy_waits_for_the_kernel_that_makes_its_source(pool: str) -> None:
    values = {f"t{i}": torch.zeros(1 << 16, device="cuda") for i in range(20)}
    with gpushm.create_many(None, values, pool=pool) as b:
        for own in (torch.cuda.Stream(), torch.cuda.default_stream()):
            with torch.cuda.stream(own):
                torch.cuda._sleep(200_000_000)
                for t in values.values():
                    t.add_(1)
                b.update(values)
            assert all(bool((b[name].copy_to_host() == t.cpu().numpy()).all()) for name, t in values.items())
            with torch.cuda.stream(own):
                torch.cuda._sleep(200_000_000)
                for t in values.values():
                    t.add_(1)
                b.update(values, stream=own)
            own.synchronize()
            assert all(bool((b[name].copy_to_host() == t.cpu().numpy()).all()) for name, t in values.items())
            other = torch.cuda.Stream()
            with torch.cuda.stream(own):
                torch.cuda._sleep(200_000_000)
                for t in values.values():
                    t.add_(1)
                b.update(values, stream=other)
            other.synchronize()
            assert all(bool((b[name].copy_to_host() == t.cpu().numpy()).all()) for name, t in values.items())


@pytest.mark.parametrize("pool", POOLS if len(DEVICES) > 1 else ["host"])
def test_tensors_of_a_buffer_share_its_memory(pool: str) -> None:
    values = {name: tensor(name, "cpu") for name in DTYPES}
    with gpushm.create_many(None, values, pool=pool) as b:
        # PyTorch does not take pinned memory as such.
        place = (1, 0) if b.kind == "pinned" else None
        capsules = {n: a.__dlpack__(max_version=(1, 0), dl_device=place) for n, a in b.items() if n in DTYPES}
        for found in (b.tensors(torch.from_dlpack), {n: torch.from_dlpack(c) for n, c in capsules.items()}):
            assert list(found) == DTYPES
            for name, t in found.items():
                assert (t.dtype, tuple(t.shape), bytes_of(t)) == (getattr(torch, name), (8, 12), bytes_of(values[name]))
                assert t.data_ptr() == (b[name].device_ptr or b[name].host_ptr)
            with torch.no_grad():
                found["float32"].add_(1)
            if found["float32"].is_cuda:
                torch.cuda.synchronize()
            assert ours(b["float32"]) == bytes_of(found["float32"]) != bytes_of(values["float32"])
            values["float32"] = found["float32"].cpu().clone()
            with pytest.raises(gpushm.errors.InUse):
                b.close()
            del found, t


@pytest.mark.skipif("cuda" not in DEVICES, reason="no GPU")
@pytest.mark.parametrize("pool", POOLS)
def test_kernels_on_tensors_of_a_buffer_wait_for_its_copies(pool: str) -> None:
    big, own, copies = torch.ones(1 << 26, device="cuda"), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpushm.create_many(None, {"a": ((1 << 26,), "float32"), "b": ((4,), "float32")}, pool=pool) as b:
        for n in range(1, 4):
            b["a"].copy_from_host(torch.zeros(1 << 26))
            b["a"].copy_to_device(big, stream=copies)
            with torch.cuda.stream(own):
                found = b.tensors(torch.from_dlpack)
                assert float(found["a"].sum(dtype=torch.float64)) == 1 << 26, n
            del found
