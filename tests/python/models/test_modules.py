# SPDX-License-Identifier: MIT
"""gpushm.torch.publish(), attach() and open(): a module comes back as it was, or an error says why not."""

from __future__ import annotations

import multiprocessing as mp
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpushm
import gpushm.torch as shared
import pytest
import torch
from gpushm.torch import _attach
from modules import Config, Tied, seeded, tokens

Raises = Callable[..., str]

NAMES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64"]
NAMES += ["float16", "float32", "float64", "bfloat16", "complex32", "complex64", "complex128", "float8_e4m3fn"]
NAMES += ["float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu", "float4_e2m1fn_x2"]
DTYPES = [name for name in NAMES if hasattr(torch, name)]
LAYOUTS: dict[str, Callable[[Any], Any]] = {
    "whole": lambda t: t,
    "scalar": lambda t: t[1, 2],
    "transposed": lambda t: t.T,
    "channels last": lambda t: t.reshape(2, 4, 3, 4).permute(0, 3, 1, 2),
    "depthwise": lambda t: t.reshape(8, 1, 3, 4),
    "depthwise, channels last": lambda t: t.reshape(8, 3, 4, 1).permute(0, 3, 1, 2),
    "stepped": lambda t: t[::2, 1::3],
    "expanded": lambda t: t[:1].expand(5, -1),
    "none": lambda t: t[3:3],
    "none of three axes": lambda t: t.new_empty(3, 0, 2),
}


def made(dtype: str, device: str, shape: tuple[int, ...] = (8, 12)) -> Any:
    """Bytes that are a valid number of any type."""
    size = torch.empty((), dtype=getattr(torch, dtype)).element_size()
    raw = torch.randint(0, 2, (*shape[:-1], shape[-1] * size), dtype=torch.uint8, device=device)
    return raw.view(getattr(torch, dtype))


def same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Equal in all that attach() promises."""
    if (a.shape, a.stride(), a.dtype, a.device) != (b.shape, b.stride(), b.dtype, b.device):
        return False
    words = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}[a.element_size()]
    return torch.equal(a.detach().view(words).cpu(), b.detach().view(words).cpu())


def where(t: torch.Tensor) -> int:
    return int(t.data_ptr())


# ---- what comes back ----


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_tensor_comes_back_as_it_was(name: str, device: str, dtype: str, layout: str) -> None:
    t = LAYOUTS[layout](made(dtype, device))
    with shared.publish(name, {"t": t}) as tensors:
        assert same(tensors["t"], t)
    with shared.open(name) as tensors:
        assert list(tensors) == ["t"] and same(tensors["t"], t)


def test_a_module_comes_back_as_it_was_published(name: str, device: str) -> None:
    model = seeded(device)
    shared.publish(name, model)
    got = shared.attach(name, Tied)
    assert [n for n, _ in got.named_parameters()] == [n for n, _ in model.named_parameters()]
    for (n, a), (_, b) in zip(got.state_dict().items(), model.state_dict().items(), strict=True):
        assert same(a, b), n
    assert same(got.inv_freq, model.inv_freq)
    assert torch.equal(got(tokens(device)), model(tokens(device)))
    assert not any(p.requires_grad for p in got.parameters())
    assert all(isinstance(p, torch.nn.Parameter) for p in got.parameters())


def test_tied_weights_stay_tied(name: str, device: str) -> None:
    with shared.publish(name, seeded(device)) as tensors:
        assert where(tensors["embed.weight"]) == where(tensors["head.weight"])
        arrays = dict(tensors.buffer.items())
        assert arrays["embed.weight"].offset == arrays["head.weight"].offset
        del arrays
    got = shared.attach(name, Tied)
    assert got.head.weight is got.embed.weight


def test_views_of_one_tensor_share_one_copy(name: str, device: str) -> None:
    fused = torch.randn(12, 8, device=device)
    parts = {"k": fused[4:8], "fused": fused, "q": fused[:4], "v": fused[8:].T, "alone": fused.clone()}
    with shared.publish(name, parts) as tensors:
        assert tensors.buffer.nbytes < 3 * fused.nbytes
        got = dict(tensors)
        assert all(same(got[n], parts[n]) for n in parts)
        start = where(got["fused"])
        assert [where(got[n]) - start for n in ("q", "k", "v")] == [where(parts[n]) - where(fused) for n in "qkv"]
        assert where(got["alone"]) not in range(start, start + fused.nbytes)
        got.clear()


def test_overlapping_views_without_the_whole_stay_together(name: str, device: str) -> None:
    """No tensor covers the region: each is copied, and what lies between them is not."""
    base = torch.arange(64, dtype=torch.int32, device=device)
    parts = {"even": base[::2], "low": base[:40], "high": base[30:60]}
    with shared.publish(name, parts) as tensors:
        got = dict(tensors)
        assert all(same(got[n], parts[n]) for n in parts)
        assert where(got["high"]) - where(got["low"]) == 120
        got.clear()


def test_bytes_between_elements_stay_private(name: str, device: str) -> None:
    secret = torch.full((8, 8), 77, dtype=torch.uint8, device=device)
    secret[:, ::2] = 1
    with shared.publish(name, {"t": secret[:, ::2]}) as tensors:
        raw = tensors.buffer.array((tensors.buffer.nbytes,), "uint8").copy_to_host()
        assert 77 not in raw.tolist()


def test_a_conjugate_is_resolved_when_it_is_published(name: str, device: str) -> None:
    z = torch.randn(4, 6, dtype=torch.complex64, device=device).conj()
    with shared.publish(name, {"z": z, "i": z.imag}) as tensors:
        assert torch.equal(tensors["z"], z.resolve_conj()) and torch.equal(tensors["i"], z.imag.resolve_neg())


def test_equal_modules_have_equal_layouts(name: str, device: str) -> None:
    digests = set()
    for seed in (1, 2, 3):
        digests.add(shared.publish(name, seeded(device, seed=seed)).buffer.digest)
        gpushm.unlink(name)
    shared.publish(name, seeded(device))
    assert len(digests) == 1


@pytest.mark.parametrize("start", [0, 1, 3])
def test_elements_are_aligned_in_the_buffer(name: str, start: int) -> None:
    raw = torch.zeros(64, dtype=torch.uint8)
    parts = {"bytes": raw[start:], "wide": raw[8:40].view(torch.float64)}
    with shared.publish(name, parts) as tensors:
        assert where(tensors["wide"]) % 8 == 0
        assert where(tensors["wide"]) - where(tensors["bytes"]) == 8 - start


def test_load_file_attaches_to_what_was_loaded_before(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    weights = {n: t.clone() for n, t in seeded().state_dict().items()}
    save_file(weights, tmp_path / "model.safetensors")
    first, second = (shared.load_file(tmp_path / "model.safetensors") for _ in range(2))
    assert sorted(first) == sorted(weights) and all(torch.equal(first[n], t) for n, t in weights.items())
    assert all(torch.equal(second[n], t) for n, t in weights.items())
    assert len([b for b in gpushm.ls() if b.name]) == 1


# ---- leases ----


def test_a_lease_lasts_as_long_as_the_modules_tensors(name: str) -> None:
    shared.publish(name, seeded())
    got = shared.attach(name, Tied)
    assert gpushm.stat(name).readers == 1
    parameter = got.layers[0].weight
    del got
    assert gpushm.stat(name).readers == 1
    del parameter
    assert gpushm.stat(name).readers == 0


def test_a_failed_attach_gives_its_lease_back(name: str) -> None:
    shared.publish(name, seeded())
    with pytest.raises(gpushm.errors.LayoutError) as raised:
        shared.attach(name, lambda: torch.nn.Linear(3, 3))
    assert gpushm.stat(name).readers == 0
    del raised


def test_a_failed_publish_frees_the_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise OSError("no copy")

    monkeypatch.setattr(gpushm._core, "_copy_many", fail)
    with pytest.raises(OSError, match="no copy"):
        shared.publish("model", seeded())
    assert gpushm.ls() == []


def test_open_gives_a_mapping_that_closes_after_its_tensors(name: str) -> None:
    shared.publish(name, seeded())
    with shared.open(name) as tensors:
        assert len(tensors) == 8 and "steps" in tensors and "other" not in tensors and 5 not in tensors
        with pytest.raises(KeyError):
            tensors["other"]
        t = tensors["embed.weight"]
        with pytest.raises(gpushm.errors.InUse):
            tensors.close()
        del t
    assert tensors.buffer.closed and "closed" in repr(tensors)


def test_items_and_values_are_the_mappings_tensors(name: str, device: str) -> None:
    shared.publish(name, seeded().to(device))
    with shared.open(name) as tensors:
        items, values = list(tensors.items()), list(tensors.values())
        assert [key for key, _ in items] == list(tensors) and len(items) == len(values) == len(tensors) == 8
        for (key, item), value in zip(items, values, strict=True):
            assert same(item, tensors[key]) and where(item) == where(value) == where(tensors[key])
        assert ("other", items[0][1]) not in tensors.items()
        del items, values, item, value


def test_items_of_an_unusual_type_are_made(name: str) -> None:
    there = {"a": torch.ones(2), "b": made("float8_e8m0fnu", "cpu"), "c": torch.ones(3, dtype=torch.complex64)}
    shared.publish(name, there)
    with shared.open(name) as tensors:
        assert all(same(item, there[key]) for key, item in tensors.items())


def test_a_published_model_tells_its_types_and_sizes(name: str, device: str) -> None:
    tied = torch.ones(5, dtype=torch.bfloat16, device=device)
    tensors = {"a": torch.ones(2, 3, device=device), "b": tied, "c": tied, "d": tied[1:3]}
    tensors["e"] = torch.ones(0, device=device)
    shared.publish(name, tensors)
    assert gpushm.stat(name).attrs["gpushm.types"] == b"float32 2 24, bfloat16 3 14"


def test_a_published_model_can_be_verified(name: str, device: str) -> None:
    odd = {"t": torch.randn(64, 48, device=device)[::2, 1:40].T, "u": torch.randn(3 << 20, device=device)}
    shared.publish(name, {**odd, **seeded(device).state_dict()})
    assert gpushm.verify(name) == (gpushm.stat(name).attrs["gpushm.content"] or b"").decode()
    shared.publish(name, odd, replace=True, digest=False)
    assert "gpushm.content" not in gpushm.stat(name).attrs


def test_types_give_way_to_other_attributes(name: str) -> None:
    long = "x" * 4050
    shared.publish(name, {"a": torch.ones(2)}, attrs={"note": long})
    found = gpushm.stat(name).attrs
    assert found["note"] == long.encode() and not {"gpushm.types", "gpushm.content"} & found.keys()


# ---- what does not fit ----


def test_a_mismatch_is_named(name: str, raises: Raises) -> None:
    shared.publish(name, seeded())

    def other(**changes: Any) -> Callable[[], Tied]:
        return lambda: Tied(Config(**changes))

    text = raises(gpushm.errors.LayoutError, shared.attach, name, other(hidden=4))
    assert "config.hidden is 4 here and 8 in the buffer" in text
    assert "'embed.weight' has shape (16, 4) here and (16, 8) in the buffer" in text
    text = raises(gpushm.errors.LayoutError, shared.attach, name, other(layers=3))
    assert "config.layers is 3 here and 2 in the buffer" in text and "'layers.2.weight' is in the module only" in text
    text = raises(gpushm.errors.LayoutError, shared.attach, name, other(layers=1))
    assert "'layers.1.bias' is in the buffer only" in text
    text = raises(gpushm.errors.LayoutError, shared.attach, name, lambda: Tied(dtype=torch.bfloat16))
    assert "'embed.weight' has dtype torch.bfloat16 here and torch.float32 in the buffer" in text
    text = raises(gpushm.errors.LayoutError, shared.attach, name, type("Other", (Tied,), {}))
    assert 'class is "test_modules.Other" here and "modules.Tied" in the buffer' in text


def test_another_version_of_pytorch_is_refused(name: str, raises: Raises, monkeypatch: pytest.MonkeyPatch) -> None:
    version = torch.__version__.partition("+")[0]
    monkeypatch.setattr(torch, "__version__", "1.13.0+cu117")
    shared.publish(name, seeded())
    monkeypatch.undo()
    assert f'torch is "{version}" here and "1.13.0" in the buffer' in raises(
        gpushm.errors.LayoutError, shared.attach, name, Tied
    )
    shared.attach(name, Tied, strict=False)


def test_a_field_of_the_programs_own_is_compared(name: str, raises: Raises) -> None:
    shared.publish(name, seeded(), fingerprint={"tensor parallel": "3 of 8"})
    cases = [({"tensor parallel": "2 of 8"}, '"2 of 8" here'), ({"quantiser": "awq"}, "not set in the buffer")]
    for own, said in cases:
        assert said in raises(gpushm.errors.LayoutError, shared.attach, name, Tied, fingerprint=own)
    shared.attach(name, Tied, fingerprint={"tensor parallel": "3 of 8"})
    shared.attach(name, Tied)
    with pytest.raises(ValueError, match="gpushm's own"):
        shared.attach(name, Tied, fingerprint={"torch": "2"})


def test_a_large_configuration_is_compared_by_its_digest(name: str, raises: Raises) -> None:
    model = seeded()
    model.config = {"words": "x" * 100_000}  # type: ignore[assignment]
    shared.publish(name, model)
    text = raises(gpushm.errors.LayoutError, shared.attach, name, Tied)
    assert "config is" in text and "sha256:" in text


ODD = """
import functools
import gpushm.torch
import torch
from modules import Tied

model = Tied()
relu = torch.nn.functional.relu
model.config = {"act": relu, "part": functools.partial(relu, inplace=True), "object": [object()]}
model.config |= {"names": {"a", "b", "c", "d", "e"}, "nan": float("nan"), "inf": float("inf")}
"""


def test_a_configuration_of_functions_equals_itself_in_each_process(
    name: str, in_child: Callable[..., str], raises: Raises
) -> None:
    """In each process they have another address, and a set has another order."""
    path = os.pathsep.join([str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")])
    in_child(f"{ODD}\ngpushm.torch.publish({name!r}, model)", PYTHONPATH=path, PYTHONHASHSEED="1")
    for seed in "23":
        code = f"{ODD}\nprint(gpushm.torch.attach({name!r}, model).steps)"
        assert in_child(code, PYTHONPATH=path, PYTHONHASHSEED=seed) == "tensor(7)\n"
    model = seeded()
    model.config = {"act": torch.nn.functional.silu}  # type: ignore[assignment]
    text = raises(gpushm.errors.LayoutError, shared.attach, name, model)
    assert 'config.act is "<function silu>" here and "<function relu>" in the buffer' in text


def test_without_strict_a_shape_must_match_still(name: str, raises: Raises) -> None:
    shared.publish(name, seeded())
    small = Config(hidden=4)
    assert "shape" in raises(gpushm.errors.LayoutError, shared.attach, name, lambda: Tied(small), strict=False)
    more = shared.attach(name, lambda: Tied(Config(layers=3)), strict=False)
    assert more.layers[2].weight.is_meta and not more.layers[1].weight.is_meta
    # Another dtype is taken as it is in the buffer.
    assert shared.attach(name, lambda: Tied(dtype=torch.float64), strict=False).embed.weight.dtype == torch.float32


def test_a_file_without_tied_names_and_buffers_fits(name: str, device: str, raises: Raises) -> None:
    """As a file of weights: one name of those that are tied, and no buffer that is not persistent."""
    model = seeded(device)
    weights = {n: t for n, t in model.state_dict().items() if n != "head.weight"}
    shared.publish(name, weights)
    with torch.device("meta"):
        text = raises(gpushm.errors.LayoutError, shared.attach, name, Tied())
    assert "'inv_freq' is in the module only, a buffer that files of weights do not have" in text
    assert "give attach() the function" in text and "head" not in text
    for source in (Tied(), Tied):
        got = shared.attach(name, source)
        assert got.head.weight is got.embed.weight and torch.equal(got(tokens(device)), model(tokens(device)))
        assert got.inv_freq.device == got.embed.weight.device


class Large(torch.nn.Module):
    """More parameters than the machine has memory, and a buffer that is not persistent."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.nn.Parameter(torch.empty(1 << 30)) for _ in range(256))
        self.register_buffer("scale", torch.full((2,), 0.5), persistent=False)


def test_values_of_buffers_are_built_without_memory_for_parameters() -> None:
    found = _attach._values_of(Large)
    assert found["scale"].tolist() == [0.5, 0.5]
    assert not torch.nn.Linear(1, 1).weight.is_meta, "the hook has stayed"


def test_what_cannot_be_shared_is_named(raises: Raises) -> None:
    cases: list[tuple[Any, str]] = [
        (torch.zeros(3).to_sparse(), "layout torch.sparse_coo"),
        (torch.empty(3, device="meta"), "meta device"),
        (torch.quantize_per_tensor(torch.zeros(3), 0.1, 0, torch.qint8), "quantised"),
        (torch.nn.LazyLinear(3).weight, "lazy module"),
        (3, "is a int"),
    ]
    for value, said in cases:
        text = raises(TypeError, shared.publish, "model", {"good": torch.zeros(1), "bad": value})
        assert "'bad'" in text and said in text, text
    for name in ("uint4", "int2"):
        if hasattr(torch, name):
            t = torch.empty(4, dtype=getattr(torch, name))
            assert "'bad'" in raises(TypeError, shared.publish, "model", {"bad": t})
    assert "no tensor" in raises(ValueError, shared.publish, "model", {})
    assert "the metadata's name" in raises(ValueError, shared.publish, "model", {"__metadata__": torch.zeros(1)})
    assert "not a list" in raises(TypeError, shared.publish, "model", [torch.zeros(1)])
    assert "not a list" in raises(TypeError, shared.attach, "model", [])
    assert "made a int" in raises(TypeError, shared.attach, "model", lambda: 5)


def test_a_name_is_waited_for_only_with_a_timeout(raises: Raises, name: str) -> None:
    raises(gpushm.errors.NotFound, shared.attach, "model", Tied)
    raises(gpushm.errors.Timeout, shared.attach, "model", Tied, timeout=0.01)
    shared.publish(name, seeded())
    raises(gpushm.errors.Exists, shared.publish, name, seeded())


def test_a_device_is_understood_or_refused(name: str, raises: Raises) -> None:
    shared.publish(name, seeded(), pool="host")
    for device in ("cpu", torch.device("cpu"), None, "current"):
        with shared.open(name, device=device) as tensors:
            assert tensors["steps"].device.type == "cpu"
    assert "mps" in raises(ValueError, shared.open, name, device="mps")


# ---- what may be written to ----


def test_a_writable_tensor_is_a_private_copy(name: str, device: str, raises: Raises) -> None:
    model = seeded(device)
    shared.publish(name, model)
    got = shared.attach(name, Tied, writable=["head.*", "steps"])
    assert got.head.weight is got.embed.weight
    with torch.no_grad():
        got.head.weight.add_(1)
        got.steps.add_(1)
    with shared.open(name) as tensors:
        assert same(tensors["embed.weight"], model.embed.weight) and int(tensors["steps"]) == 7
    assert "'nothing.*'" in raises(ValueError, shared.attach, name, Tied, writable=["nothing.*"])
    assert int(shared.attach(name, Tied, writable="steps").steps.add_(1)) == 8


def test_attributes_of_a_parameter_are_kept(name: str) -> None:
    shared.publish(name, seeded())

    def factory() -> Tied:
        model = Tied()
        model.layers[0].weight.loader = "row"
        return model

    assert shared.attach(name, factory).layers[0].weight.loader == "row"


WRITE = """
import torch, modules, gpushm.torch
got = gpushm.torch.attach("model", modules.Tied)
with torch.no_grad():
    got.embed.weight.add_(1)
print("written")
"""


def test_a_write_to_shared_weights_ends_its_process(name: str, in_child: Callable[..., str]) -> None:
    model = seeded()
    shared.publish(name, model)
    path = os.pathsep.join([os.path.dirname(__file__), os.environ.get("PYTHONPATH", "")])
    assert in_child(WRITE, status=-11, PYTHONPATH=path) == ""
    with shared.open(name) as tensors:
        assert same(tensors["embed.weight"], model.embed.weight)


class Norm(torch.nn.Module):
    """Whose statistics change with each call in training mode."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)


def test_a_shared_module_in_training_mode_is_warned_of(name: str, device: str) -> None:
    shared.publish(name, Norm().eval().to(device))
    with pytest.warns(gpushm.errors.ReadOnlyWarning, match=r"'norm\..*training mode.*eval\(\)") as said:
        shared.attach(name, Norm)
    assert len(said) == 1 and said[0].filename == __file__
    for source, writable in ((lambda: Norm().eval(), ()), (Norm, "*")):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shared.attach(name, source, writable=writable)


# ---- processes ----


def follow(device: str) -> tuple[list[list[float]], int]:
    got = shared.attach("model", Tied, timeout=60)
    return got(tokens(device))[0].tolist(), os.getpid()


def test_another_process_computes_the_same(name: str, device: str) -> None:
    model = seeded(device)
    with mp.get_context("spawn").Pool(1) as pool:
        results = [pool.apply_async(follow, (device,)) for _ in range(2)]
        shared.publish(name, model)
        for result in results:
            assert result.get(120)[0] == model(tokens(device))[0].tolist()


def test_replace_leaves_the_old_model_to_its_holders(name: str, device: str) -> None:
    old = seeded(device, seed=1)
    shared.publish(name, old)
    holder = shared.attach(name, Tied)
    new = seeded(device, seed=2)
    shared.publish(name, new, replace=True)
    assert torch.equal(holder(tokens(device)), old(tokens(device)))
    assert torch.equal(shared.attach(name, Tied)(tokens(device)), new(tokens(device)))
    assert [b.name for b in gpushm.ls() if b.name] == [name]


@pytest.mark.skipif(all(p.kind != "pinned" for p in gpushm.pools()), reason="no driver")
def test_a_module_is_published_in_pinned_memory(name: str) -> None:
    module = torch.nn.Linear(4, 3)
    with shared.publish(name, module, pool="pinned") as found:
        assert same(found["weight"], module.weight)
    attached = shared.attach(name, torch.nn.Linear(4, 3, device="meta"))
    assert same(attached.weight, module.weight)
    with gpushm.open_many(name) as b:
        assert same(b.tensors(torch.from_dlpack)["weight"], module.weight)
    gpushm.unlink(name)
