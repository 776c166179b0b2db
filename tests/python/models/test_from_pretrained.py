# SPDX-License-Identifier: MIT
"""gpushm.transformers.from_pretrained(): a folder of weights is loaded once, and every process has the same model."""

from __future__ import annotations

import gc
import multiprocessing as mp
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gpushm
import pytest
import torch
from torch.overrides import TorchFunctionMode

from daemon import Daemon

transformers = pytest.importorskip("transformers")
pytest.importorskip("safetensors")

import gpushm.torch  # noqa: E402
import gpushm.transformers  # noqa: E402
from gpushm.transformers import _hook, _share  # noqa: E402

Raises = Callable[..., str]


def llama(**changes: Any) -> Any:
    """A small model with random weights."""
    values: dict[str, Any] = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128}
    values |= {"tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    torch.manual_seed(3)
    config = transformers.LlamaConfig(**(values | changes))
    return transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)


def mixtral() -> Any:
    """Whose experts transformers joins when it loads them."""
    values: dict[str, Any] = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4, "num_experts_per_tok": 2}
    torch.manual_seed(3)
    return transformers.AutoModelForCausalLM.from_config(transformers.MixtralConfig(**values), dtype=torch.bfloat16)


def wav2vec2() -> Any:
    """Whose first parameter its constructor makes on the CPU, also under torch.device("meta")."""
    values: dict[str, Any] = {"vocab_size": 32, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2}
    values |= {"num_attention_heads": 4, "num_feat_extract_layers": 2, "conv_dim": (16, 16), "conv_stride": (5, 2)}
    values |= {"conv_kernel": (10, 3), "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4}
    torch.manual_seed(3)
    return transformers.Wav2Vec2ForCTC(transformers.Wav2Vec2Config(**values))


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """A model as save_pretrained() leaves it."""
    model = llama()
    model.generation_config.max_new_tokens = 5
    model.save_pretrained(tmp_path / "llama")
    return str(tmp_path / "llama")


def logits(model: Any) -> Any:
    """What the model says of a few tokens."""
    with torch.inference_mode():
        return model(torch.arange(10, device=model.device)[None]).logits.float().cpu()


def plain(folder: str, device: str, **words: Any) -> Any:
    """As transformers loads it."""
    return transformers.AutoModelForCausalLM.from_pretrained(folder, device_map={"": device}, **words)


def shared(folder: str, device: str, name: str = "model", **words: Any) -> Any:
    """As gpushm loads it."""
    return gpushm.transformers.from_pretrained(folder, name=name, device_map={"": device}, **words)


def is_in(buffer: gpushm.Buffer, model: Any) -> bool:
    """Whether all weights lie in a buffer of that id: each is where its Array is in a mapping of this process."""
    starts = {b.device_ptr or b.host_ptr: b.nbytes for b in gpushm._core._opened() if b.id == buffer.id}
    return all(
        any(start <= p.data_ptr() < start + size for start, size in starts.items() if start)
        for p in model.state_dict().values()
    )


def check(model: Any, folder: str, device: str, **words: Any) -> None:
    """It is what transformers makes of the files, and its weights are shared."""
    reference = plain(folder, device, **words)
    assert type(model) is type(reference) and model.config.to_dict() == reference.config.to_dict()
    assert torch.equal(logits(model), logits(reference))
    assert model.generation_config.to_dict() == reference.generation_config.to_dict()
    assert {n: (b.dtype, b.device) for n, b in model.named_buffers()} == {
        n: (b.dtype, b.device) for n, b in reference.named_buffers()
    }
    assert not any(t.is_meta or t.requires_grad for t in (*model.parameters(), *model.buffers()))
    assert not model.training
    with gpushm.open_many("model") as b:
        assert is_in(b, model)


# ---- what comes back ----


def test_a_model_equals_that_of_transformers(folder: str, name: str, device: str) -> None:
    first = shared(folder, device)
    found = gpushm.stat("model")
    assert found.attrs["gpushm.path"] == f"{folder}/model.safetensors".encode(), "it was not loaded by gpushm.load()"
    assert (found.mode, found.transient, found.state) == (0o600, False, "sealed")
    second = shared(folder, device)
    check(first, folder, device)
    check(second, folder, device)
    assert gpushm.stat("model").id == found.id
    generated = second.generate(torch.arange(3, 9, device=device)[None], do_sample=False)
    assert generated.shape[1] <= 6 + 5


def follow(folder: str, device: str, out: Any, dtype: Any = "auto", replace: bool = False) -> None:
    """In another process."""
    model = shared(folder, device, dtype=dtype, replace=replace)
    out.put((logits(model).numpy(), gpushm.stat("model").id))


def test_another_process_has_the_same_model(folder: str, name: str, device: str) -> None:
    model = shared(folder, device)
    ctx = mp.get_context("spawn")
    out = ctx.Queue()
    process = ctx.Process(target=follow, args=(folder, device, out))
    process.start()
    got, id = out.get(timeout=300)
    process.join()
    assert torch.equal(torch.from_numpy(got), logits(model)) and id == gpushm.stat("model").id


def test_tied_weights_stay_tied(tmp_path: Path, name: str, device: str) -> None:
    folder = str(tmp_path / "tied")
    llama(tie_word_embeddings=True).save_pretrained(folder)
    for _ in range(2):
        model = shared(folder, device)
        assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
        check(model, folder, device)
    assert "lm_head.weight" not in gpushm.open_many("model")


class OneMlp(transformers.LlamaForCausalLM):  # type: ignore[misc, name-defined]
    """Two layers of it are one module in part."""

    def __init__(self, config: Any) -> None:
        super().__init__(config)
        self.model.layers[1].mlp = self.model.layers[0].mlp


def test_a_module_with_two_names_keeps_both(tmp_path: Path, name: str, device: str) -> None:
    folder = str(tmp_path / "one")
    model = llama()
    model.model.layers[1].mlp.load_state_dict(model.model.layers[0].mlp.state_dict())
    model.save_pretrained(folder)
    for _ in range(2):
        found = shared(folder, device, cls=OneMlp)
        assert found.model.layers[1].mlp is found.model.layers[0].mlp
        assert torch.equal(logits(found), logits(plain(folder, device)))


def test_shards_make_one_model(tmp_path: Path, name: str, device: str) -> None:
    folder = str(tmp_path / "sharded")
    llama().save_pretrained(folder, max_shard_size="100KB")
    assert len(list(Path(folder).glob("*.safetensors"))) > 1
    check(shared(folder, device), folder, device)
    assert "gpushm.files" in gpushm.stat("model").attrs


def test_another_dtype_is_made_by_transformers(folder: str, name: str, device: str) -> None:
    # Not as it is in the file: transformers loads it.
    first = shared(folder, device, dtype=torch.float32)
    assert "gpushm.files" not in gpushm.stat("model").attrs and first.dtype == torch.float32
    second = shared(folder, device, dtype=torch.float32)
    check(first, folder, device, dtype=torch.float32)
    check(second, folder, device, dtype=torch.float32)
    assert gpushm.ls("model.loading") == []


def test_a_transient_model_ends_with_its_last_user(folder: str, device: str) -> None:
    for dtype in (torch.bfloat16, torch.float32):  # as it is in the file, and not
        first = shared(folder, device, transient=True, dtype=dtype)
        second = shared(folder, device, transient=True, dtype=dtype)
        assert gpushm.stat("model").transient and torch.equal(logits(first), logits(second))
        del first, second
        gc.collect()
        end = time.monotonic() + 60
        while gpushm.ls("model"):
            assert time.monotonic() < end


def test_joined_experts_equal_those_of_transformers(tmp_path: Path, name: str, device: str) -> None:
    folder = str(tmp_path / "mixtral")
    mixtral().save_pretrained(folder)
    for _ in range(2):
        check(shared(folder, device), folder, device)
    assert "gpushm.files" not in gpushm.stat("model").attrs


def test_a_parameter_that_is_built_on_the_cpu_is_shared(tmp_path: Path, name: str, device: str) -> None:
    folder = str(tmp_path / "wav2vec2")
    wav2vec2().save_pretrained(folder)
    cls = transformers.AutoModelForCTC
    reference = cls.from_pretrained(folder, device_map={"": device})
    sound = torch.linspace(-1, 1, 800, device=device)[None]
    for _ in range(2):
        model = shared(folder, device, cls=cls)
        with torch.inference_mode():
            assert torch.equal(model(sound).logits, reference(sound).logits)
        with gpushm.open_many("model") as b:
            assert is_in(b, model)


def test_missing_weights_are_the_same_in_each_load(folder: str, name: str, device: str) -> None:
    cls = transformers.AutoModelForSequenceClassification
    heads = [shared(folder, device, cls=cls).score.weight for _ in range(2)]
    assert torch.equal(heads[0], heads[1])


def test_a_write_is_private(folder: str, name: str) -> None:
    one, two = shared(folder, "cpu"), shared(folder, "cpu")
    with torch.no_grad():
        one.lm_head.weight.zero_()
    assert two.lm_head.weight.any()
    check(two, folder, "cpu")


def test_a_plain_load_stays_unshared(folder: str, name: str) -> None:
    shared(folder, "cpu")
    model = plain(folder, "cpu")
    assert any(p.requires_grad for p in model.parameters())
    with gpushm.open_many("model") as b:
        assert not is_in(b, model)


class Initialisations(TorchFunctionMode):  # type: ignore[misc]
    """Counts those of parameters on the meta device."""

    def __init__(self) -> None:
        self.count = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            self.count += (*args, *kwargs.values())[0].is_meta
        return func(*args, **kwargs)


def test_constructors_skip_the_initialisation_of_what_is_loaded(folder: str, name: str) -> None:
    with Initialisations() as plainly:
        plain(folder, "cpu")
    with Initialisations() as found:
        shared(folder, "cpu")
    assert found.count == 0 < plainly.count
    with Initialisations() as later:
        plain(folder, "cpu")
    assert later.count == plainly.count


def test_loading_info_and_options_are_passed_on(folder: str, name: str) -> None:
    model, info = shared(
        folder, "cpu", output_loading_info=True, mode=0o640, transient=True, attn_implementation="eager"
    )
    assert model.config._attn_implementation == "eager"
    assert not info["missing_keys"] and not info["unexpected_keys"]
    found = gpushm.stat("model")
    assert (found.mode, found.transient) == (0o640, True)
    # `name` unlinks it.


def test_the_warm_up_reserves_little_memory(tmp_path: Path, name: str, gpu: str) -> None:
    folder = str(tmp_path / "larger")
    llama(hidden_size=1024, intermediate_size=4096, num_hidden_layers=4, vocab_size=32000).save_pretrained(folder)
    nbytes = sum(p.stat().st_size for p in Path(folder).glob("*.safetensors"))
    for _ in range(2):
        gc.collect()
        torch.cuda.empty_cache()
        before = torch.cuda.memory_reserved()
        model = shared(folder, gpu)
        assert torch.cuda.memory_reserved() - before < nbytes / 10
        check(model, folder, gpu)
        del model


# ---- one loads, the others wait ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["by gpushm", "by transformers"])
def test_processes_share_one_load_of_a_model(folder: str, name: str, dtype: Any) -> None:
    ctx = mp.get_context("spawn")
    out = ctx.Queue()
    processes = [ctx.Process(target=follow, args=(folder, "cpu", out, dtype)) for _ in range(3)]
    for process in processes:
        process.start()
    got = [out.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert {id for _, id in got} == {gpushm.stat("model").id}
    assert all((got[0][0] == found).all() for found, _ in got)


@pytest.mark.parametrize("same", [False, True], ids=["another model", "this one"])
def test_a_loader_checks_what_was_made_meanwhile(
    folder: str, name: str, same: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish = gpushm.torch.publish

    def late(*args: Any, **words: Any) -> Any:
        if same:
            publish(*args, **words)
        else:
            shared(folder, "cpu")  # loaded by gpushm, without the lock
        return publish(*args, **words)

    monkeypatch.setattr(gpushm.torch, "publish", late)
    if same:
        check(shared(folder, "cpu", dtype=torch.float32), folder, "cpu", dtype=torch.float32)
    else:
        with pytest.raises(gpushm.errors.LayoutError, match='dtype is "float32" here and "bfloat16" in the buffer'):
            shared(folder, "cpu", dtype=torch.float32)
    assert gpushm.ls("model.loading") == []


def test_a_loader_that_fails_frees_the_name(folder: str, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: object, **words: object) -> None:
        raise gpushm.errors.PoolFull(28, "no space")

    with monkeypatch.context() as m:
        m.setattr(gpushm.torch, "publish", fails)
        with pytest.raises(gpushm.errors.PoolFull):
            shared(folder, "cpu", dtype=torch.float32)
    assert gpushm.ls() == []
    shared(folder, "cpu", dtype=torch.float32)


def test_a_loader_that_hangs_is_waited_for_up_to_the_timeout(folder: str, raises: Raises) -> None:
    with gpushm.create("model", 1, pool="host") as a:
        raises(gpushm.errors.Timeout, shared, folder, "cpu", timeout=0.5)
        a.discard()
    with gpushm.create("model.loading", 1, pool="host") as a:
        assert "still loads" in raises(gpushm.errors.Timeout, shared, folder, "cpu", dtype=torch.float32, timeout=0.5)
        a.discard()


def test_a_host_pool_can_have_any_name(folder: str, in_child: Callable[..., str]) -> None:
    daemon = Daemon("[pool ram]\nkind = host\nsize = 64 MiB\n")
    code = f"""
import gpushm.transformers
import torch

gpushm.transformers.from_pretrained({folder!r}, name="model", pool="ram", dtype=torch.float32)
print(gpushm.stat("model").pool)
"""
    try:
        assert in_child(code, GPUSHM_SOCKET=daemon.socket) == "ram\n"
    finally:
        daemon.remove()


# ---- models that gpushmctl has loaded, and new ones under their names ----


def gpushmctl(*args: str) -> None:
    subprocess.run([f"{os.environ['BUILD']}/gpushmctl", *args], check=True, capture_output=True, timeout=120)


def build() -> Any:
    return llama(tie_word_embeddings=True).eval()


def saved(folder: Path, seed: int, **words: Any) -> str:
    model = llama(tie_word_embeddings=True)
    with torch.no_grad():
        model.lm_head.weight.fill_(seed / 16)
    model.save_pretrained(folder, **words)
    return str(folder)


@pytest.mark.parametrize("size", ["5GB", "40KB"], ids=["one file", "shards"])
def test_a_model_that_gpushmctl_has_loaded_is_attached_both_ways(tmp_path: Path, name: str, size: str) -> None:
    folder = saved(tmp_path / "one", 1, max_shard_size=size)
    gpushmctl("load", "-q", "--pool", "host", folder, name)
    id = gpushm.stat(name).id
    check(shared(folder, "cpu"), folder, "cpu")
    attached = gpushm.torch.attach(name, build)
    assert attached.get_input_embeddings().weight is attached.get_output_embeddings().weight
    assert torch.equal(logits(attached), logits(plain(folder, "cpu")))
    words = {"inputs": torch.arange(3, 9)[None], "do_sample": False, "max_new_tokens": 4}
    assert torch.equal(attached.generate(**words), plain(folder, "cpu").generate(**words))
    assert gpushm.stat(name).id == id


def test_gpushmctl_swaps_a_model_under_its_users(tmp_path: Path, name: str) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    gpushmctl("load", "-q", "--pool", "host", one, name)
    old = shared(one, "cpu"), gpushm.torch.attach(name, build)
    before = logits(old[0])
    gpushmctl("load", "-q", "--pool", "host", "--replace", two, name)
    new = shared(two, "cpu"), gpushm.torch.attach(name, build)
    for was, now in zip(old, new, strict=True):
        assert torch.equal(logits(was), before)
        assert torch.equal(logits(now), logits(plain(two, "cpu")))
    assert not torch.equal(before, logits(new[0]))


def test_a_loaded_model_that_does_not_fit_is_refused(tmp_path: Path, name: str, raises: Raises) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    gpushmctl("load", "-q", "--pool", "host", one, name)
    assert "other files" in raises(gpushm.errors.LayoutError, shared, two, "cpu")
    assert "leave dtype= out" in raises(gpushm.errors.LayoutError, shared, one, "cpu", dtype=torch.float32)
    check(shared(one, "cpu"), one, "cpu")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["by gpushm", "by transformers"])
def test_another_model_takes_the_name_over(tmp_path: Path, name: str, dtype: Any) -> None:
    one, two = saved(tmp_path / "one", 1), saved(tmp_path / "two", 2)
    old = shared(one, "cpu", dtype=dtype, replace=True)
    before, first = logits(old), gpushm.stat(name).id
    shared(one, "cpu", dtype=dtype, replace=True)
    assert gpushm.stat(name).id == first, "it is the same"
    new = shared(two, "cpu", dtype=dtype, replace=True)
    check(new, two, "cpu", dtype=dtype)
    second = gpushm.stat(name).id
    assert second != first and torch.equal(logits(old), before)
    config = transformers.AutoConfig.from_pretrained(two)
    config.rms_norm_eps = 0.5
    assert shared(two, "cpu", dtype=dtype, replace=True, config=config).config.rms_norm_eps == 0.5
    assert gpushm.stat(name).id != second and gpushm.ls("model.loading") == []


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["by gpushm", "by transformers"])
def test_processes_share_one_load_that_replaces(folder: str, tmp_path: Path, name: str, dtype: Any) -> None:
    shared(saved(tmp_path / "one", 1), "cpu")
    ctx = mp.get_context("spawn")
    out = ctx.Queue()
    processes = [ctx.Process(target=follow, args=(folder, "cpu", out, dtype, True)) for _ in range(3)]
    for process in processes:
        process.start()
    got = [out.get(timeout=300) for _ in processes]
    for process in processes:
        process.join()
    assert {id for _, id in got} == {gpushm.stat("model").id}


# ---- what does not fit ----


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=["by gpushm", "by transformers"])
def test_a_pool_that_does_not_fit_the_device_is_refused(
    folder: str, dtype: Any, raises: Raises, monkeypatch: pytest.MonkeyPatch
) -> None:
    pools = [SimpleNamespace(name="gpu7", kind="vmm", device=7, allowed=True, failed=False), *gpushm.pools()]
    monkeypatch.setattr(gpushm._core, "pools", lambda: pools)
    for device, pool in ("cpu", "gpu7"), ("cuda:0", "host"):
        text = raises(gpushm.errors.LayoutError, shared, folder, device, pool=pool, dtype=dtype)
        assert pool in text and ("the CPU" if device == "cpu" else "GPU 0") in text
    assert gpushm.ls() == []


def test_another_model_is_refused_with_the_difference(folder: str, tmp_path: Path, name: str, raises: Raises) -> None:
    model = shared(folder, "cpu")
    assert 'dtype is "float32" here and "bfloat16" in the buffer' in raises(
        gpushm.errors.LayoutError, shared, folder, "cpu", dtype=torch.float32
    )
    assert 'class is "LlamaModel" here and "LlamaForCausalLM" in the buffer' in raises(
        gpushm.errors.LayoutError, shared, folder, "cpu", cls=transformers.AutoModel
    )
    config = transformers.AutoConfig.from_pretrained(folder)
    config.rms_norm_eps = 0.5
    text = raises(gpushm.errors.LayoutError, shared, folder, "cpu", config=config)
    assert "config.rms_norm_eps is 0.5 here and" in text
    other = str(tmp_path / "other")
    llama(num_hidden_layers=3).save_pretrained(other)
    said = raises(gpushm.errors.LayoutError, shared, other, "cpu")
    assert "config.num_hidden_layers is 3 here and 2 in the buffer" in said
    copy = str(tmp_path / "copy")
    shutil.copytree(folder, copy, copy_function=shutil.copyfile)
    assert "other files" in raises(gpushm.errors.LayoutError, shared, copy, "cpu")
    check(model, folder, "cpu")


def test_a_buffer_of_something_else_is_refused(folder: str, name: str, raises: Raises) -> None:
    with gpushm.create("model", 4, pool="host") as a:
        a.publish()
    assert "not made by gpushm.transformers" in raises(gpushm.errors.LayoutError, shared, folder, "cpu")


def test_strangers_weights_need_trust(folder: str, name: str, raises: Raises, monkeypatch: pytest.MonkeyPatch) -> None:
    shared(folder, "cpu")
    found = gpushm.stat("model")
    theirs = SimpleNamespace(id=found.id, kind=found.kind, pool=found.pool, state=found.state, uid=4321)
    monkeypatch.setattr(gpushm._core, "stat", lambda name: theirs)
    assert "uid 4321" in raises(gpushm.errors.AccessDenied, shared, folder, "cpu")
    monkeypatch.setenv("GPUSHM_TRUST", "nobody,4321")
    shared(folder, "cpu")


def test_what_cannot_be_shared_is_refused(folder: str, raises: Raises, monkeypatch: pytest.MonkeyPatch) -> None:
    load = gpushm.transformers.from_pretrained
    disk = {"model": "cpu", "lm_head": "disk"}
    text = raises(gpushm.errors.NotSupported, load, folder, name="model", device_map=disk)
    assert "disk" in text
    assert gpushm.ls() == []

    class Special(torch.Tensor):
        """A tensor of a quantiser."""

    monkeypatch.setattr(_share.torch.nn, "Parameter", Special)
    with pytest.raises(gpushm.errors.NotSupported, match="is a "):
        _share._plain_state_dict(llama())


def test_an_unknown_version_of_transformers_is_refused(
    folder: str, raises: Raises, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as m:
        m.setattr(_hook.PreTrainedModel, "_load_pretrained_model", staticmethod(lambda model, files: None))
        assert transformers.__version__ in raises(gpushm.errors.NotSupported, shared, folder, "cpu")
    with monkeypatch.context() as m:
        m.setattr(_hook, "_FIELDS", {"none_such"})
        assert "none_such" in raises(gpushm.errors.NotSupported, shared, folder, "cpu")
    # A class with a loader of its own.
    with monkeypatch.context() as m:
        m.setattr(transformers.LlamaForCausalLM, "from_pretrained", classmethod(lambda cls, *a, **k: llama()))
        assert "was not loaded by" in raises(gpushm.errors.NotSupported, shared, folder, "cpu")
    assert gpushm.ls() == []
