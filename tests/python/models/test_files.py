# SPDX-License-Identifier: MIT
"""gpushm.safetensors beside safetensors itself, for PyTorch. Tests with `opener` run with both."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gpushm
import pytest
import torch

safetensors = pytest.importorskip("safetensors")
torch_files = pytest.importorskip("safetensors.torch")

import gpushm.safetensors  # noqa: E402
import gpushm.safetensors.torch  # noqa: E402
import gpushm.torch  # noqa: E402
from gpushm import _libraries  # noqa: E402

Raises = Callable[..., str]
SafetensorError = gpushm.safetensors.SafetensorError

NAMES = ["bool", "uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64", "float16", "float32"]
NAMES += ["float64", "bfloat16", "complex64", "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz"]
NAMES += ["float8_e8m0fnu", "float4_e2m1fn_x2"]
DTYPES = [getattr(torch, name) for name in NAMES if hasattr(torch, name)]


def raw(tensor: Any) -> Any:
    """The bytes, on the CPU: not every dtype can be compared."""
    return tensor.detach().cpu().contiguous().view(torch.uint8) if tensor.ndim else tensor.detach().cpu()


def tensors() -> dict[str, Any]:
    """One of each dtype, a scalar, and one without elements."""
    torch.manual_seed(1)
    found = {str(d).removeprefix("torch."): torch.randint(0, 2, (4, 32), dtype=torch.uint8).view(d) for d in DTYPES}
    return found | {"scalar": torch.tensor(3.5), "empty": torch.zeros((0, 3)), "a": torch.randn(10, 5)}


@pytest.fixture(autouse=True)
def ended(nothing_is_left: None) -> Iterator[None]:
    """The buffers of files end with their last user, which the daemon is told without a reply."""
    yield
    import gc
    import time

    gc.collect()
    end = time.monotonic() + 10
    while gpushm.ls() and time.monotonic() < end:
        pass


@pytest.fixture
def file(tmp_path: Path) -> str:
    """A file of these tensors."""
    path = str(tmp_path / "model.safetensors")
    torch_files.save_file(tensors(), path, metadata={"format": "pt"})
    return path


@pytest.fixture(params=[safetensors.safe_open, gpushm.safetensors.safe_open], ids=["original", "gpushm"])
def opener(request: pytest.FixtureRequest) -> Any:
    """safe_open of both packages."""
    return request.param


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """On a GPU a ReadOnlyWarning is right."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gpushm.errors.ReadOnlyWarning)
        yield


def test_a_tensor_equals_the_originals(opener: Any, file: str, device: str) -> None:
    wanted = tensors()
    with opener(file, "pt", device=device) as f:
        assert f.keys() == sorted(wanted) and f.metadata() == {"format": "pt"}
        found = f.get_tensors()
        assert list(found) == f.offset_keys()
        for name, tensor in wanted.items():
            got = f.get_tensor(name)
            assert (got.shape, got.dtype, got.device.type) == (tensor.shape, tensor.dtype, device), name
            assert got.is_contiguous() and not got.requires_grad
            assert torch.equal(raw(got), raw(tensor)) and torch.equal(raw(found[name]), raw(tensor)), name


KEYS: list[Any] = [slice(None), (), slice(2), (slice(None), slice(None, 2)), (0, slice(2)), (slice(2, None), -1), []]
KEYS += [..., (..., 1), slice(None, None, 3), slice(0, 20), slice(-3, None), [1, 2], (None, 0)]


@pytest.mark.parametrize("key", KEYS, ids=str)
def test_a_slice_equals_the_originals(opener: Any, file: str, device: str, key: Any) -> None:
    a = tensors()["a"]
    with opener(file, "pt", device=device) as f:
        part = f.get_slice("a")
        assert part.get_shape() == [10, 5] and part.get_dtype() == "F32"
    assert torch.equal(part[key].cpu(), a[key])


def test_errors_have_the_types_of_the_library(opener: Any, file: str) -> None:
    with pytest.raises(FileNotFoundError, match="No such file or directory: notafile"):
        opener("notafile", framework="pt")
    for device in "zz", -1, "cuda:x", "cpu:x":
        with pytest.raises((SafetensorError, ValueError)):
            opener(file, "pt", device)
    with opener(file, "pt") as f, pytest.raises(IndexError):
        f.get_slice("a")[20]
    with pytest.raises(SafetensorError, match="File is closed"):
        f.keys()


@pytest.mark.parametrize(
    "load", [gpushm.safetensors.load_file, gpushm.safetensors.torch.load_file, gpushm.torch.load_file]
)
def test_two_loads_of_a_file_share_its_buffer(load: Any, file: str, device: str) -> None:
    one, two = load(file, device), load(Path(file), device=device)
    assert len(gpushm.ls()) == 1 and gpushm.ls()[0].name.startswith("safetensors/")
    for name, tensor in tensors().items():
        assert torch.equal(raw(one[name]), raw(tensor)) and torch.equal(raw(two[name]), raw(tensor))
        # A storage of its own: a program that saves the tensor does not save the whole file.
        assert one[name].untyped_storage().nbytes() == one[name].nbytes
    assert gpushm.as_array(one["a"]).buffer.id == gpushm.as_array(two["a"]).buffer.id


def test_every_name_of_a_device_is_understood(file: str, gpu: str) -> None:
    for device in 0, "cuda", "cuda:0", torch.device("cuda", 0):
        assert gpushm.safetensors.load_file(file, device)["a"].device == torch.device("cuda:0")
    assert gpushm.safetensors.load_file(file)["a"].device.type == "cpu"


def test_a_write_on_the_cpu_is_private(file: str) -> None:
    one, two = gpushm.safetensors.torch.load_file(file), gpushm.safetensors.torch.load_file(file)
    one["a"].zero_()
    one["a"].add_(1)
    assert torch.equal(two["a"], tensors()["a"]) and torch.equal(one["a"], torch.ones(10, 5))


def test_a_read_only_tensor_comes_with_a_warning(file: str, gpu: str) -> None:
    code = f"import gpushm.safetensors as s\\nfound = s.load_file({file!r}, 'cuda')"
    done = subprocess.run(
        [sys.executable, "-c", code.replace("\\n", "\n")], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and "ReadOnlyWarning" in done.stderr, done.stderr
    assert "<string>:2: ReadOnlyWarning" in done.stderr


def test_the_other_functions_work_as_safetensors_own(file: str, tmp_path: Path, device: str) -> None:
    module = gpushm.safetensors.torch
    assert module.save_model is torch_files.save_model and module.load is torch_files.load
    found = module.load_file(file, device)
    again = tmp_path / "again.safetensors"
    gpushm.safetensors.save_file({k: v.contiguous() for k, v in found.items()}, again, metadata={"format": "pt"})
    assert again.read_bytes() == Path(file).read_bytes()
    assert torch.equal(module.load(module.save({"a": found["a"]}))["a"], tensors()["a"])


@pytest.fixture
def linear(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[torch.nn.Module, str]:
    """A module and its file, in a process that has not been warned."""
    monkeypatch.setattr(_libraries, "_said", {("PyTorch", "host")})
    module = torch.nn.Linear(3, 4)
    torch_files.save_file(module.state_dict(), tmp_path / "linear.safetensors")
    return module, str(tmp_path / "linear.safetensors")


def test_load_model_says_that_it_copies(linear: tuple[torch.nn.Module, str]) -> None:
    made = torch.nn.Linear(3, 4)
    with pytest.warns(gpushm.safetensors.FallbackWarning, match=r"load_model.*assign=True") as said:
        assert gpushm.safetensors.torch.load_model(made, linear[1]) == (set(), [])
        gpushm.safetensors.torch.load_model(made, linear[1])
    assert len(said) == 1 and said[0].filename == __file__
    assert torch.equal(made.weight, linear[0].weight)


def test_accelerate_is_warned_of_where_it_copies(
    linear: tuple[torch.nn.Module, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    modeling = pytest.importorskip("accelerate.utils.modeling")
    monkeypatch.setattr(modeling, "safe_open", gpushm.safetensors.safe_open)
    monkeypatch.setattr(modeling, "safe_load_file", gpushm.safetensors.torch.load_file)
    with torch.device("meta"):
        made = torch.nn.Linear(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gpushm.safetensors.FallbackWarning)
        modeling.load_checkpoint_in_model(made, linear[1], device_map={"": "cpu"})
    with gpushm.open_many(gpushm.ls()[0].name, "c") as b:
        starts = {one.host_ptr: one.nbytes for one in gpushm._core._opened() if one.id == b.id}
        assert any(start <= made.weight.data_ptr() < start + size for start, size in starts.items())
    for words in ({}, {"device_map": {"": "cpu"}, "dtype": torch.float16}):
        monkeypatch.setattr(_libraries, "_said", {("PyTorch", "host")})
        with pytest.warns(gpushm.safetensors.FallbackWarning, match="load_checkpoint_in_model.*device_map") as said:
            modeling.load_checkpoint_in_model(torch.nn.Linear(3, 4), linear[1], **words)
        assert [w.filename for w in said] == [__file__]


def test_transformers_is_warned_of_where_it_converts(
    tmp_path: Path, linear: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        vocab_size=64, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2
    )
    transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(tmp_path / "llama")
    monkeypatch.setattr(transformers.modeling_utils, "safe_open", gpushm.safetensors.safe_open)
    load = transformers.AutoModelForCausalLM.from_pretrained
    with warnings.catch_warnings():
        warnings.simplefilter("error", gpushm.safetensors.FallbackWarning)
        load(tmp_path / "llama", device_map={"": "cpu"})
    with pytest.warns(gpushm.safetensors.FallbackWarning, match=r"gpushm.transformers.from_pretrained\(\)"):
        load(tmp_path / "llama", device_map={"": "cpu"}, dtype=torch.float32)


def test_a_published_model_is_saved_as_it_is(tmp_path: Path, device: str) -> None:
    model = torch.nn.Linear(3, 4).to(device)
    with gpushm.torch.publish("model", model):
        gpushm.safetensors.save_file(gpushm.open_many("model"), tmp_path / "m.safetensors")
        gpushm.safetensors.save_file(gpushm.torch.open("model"), tmp_path / "mapping.safetensors")
    gpushm.unlink("model")
    for file in "m.safetensors", "mapping.safetensors":
        found = torch_files.load_file(tmp_path / file)
        assert all(torch.equal(found[k], v.cpu()) for k, v in model.state_dict().items())
