# SPDX-License-Identifier: MIT
"""gpushm.sglang under SGLang's own get_model_loader(): engines share what one has loaded."""

from __future__ import annotations

import gc
import importlib
import logging
import os
import sys
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gpushm
import pytest
import tiny
import tiny_sglang
import torch
from gpushm import _engine, parity
from gpushm.torch._suspend import buffers_of as shared_buffers
from tiny_sglang import engine, loaded

from daemon import Daemon

pytestmark = pytest.mark.usefixtures("sglang")
SHARED = ("llama", "tied", "moe", "fp8-blocks")


@pytest.fixture(params=SHARED)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def differences(one: torch.nn.Module, other: torch.nn.Module) -> list[str]:
    return parity.compared(parity.described(one, modules=True), parity.described(other, modules=True))


def names() -> list[str]:
    return [buffer.name for buffer in gpushm.ls() if buffer.name]


def said(caplog: pytest.LogCaptureFixture) -> str:
    return " ".join(r.getMessage() for r in caplog.records if r.name == "sglang.gpushm")


def test_the_load_format_private_is_gpushm(models: dict[str, str]) -> None:
    from gpushm.sglang._loader import Loader
    from sglang.srt.configs.load_config import LoadConfig
    from sglang.srt.model_loader.loader import get_model_loader

    assert type(get_model_loader(LoadConfig(load_format="private"))) is Loader


def test_a_private_loader_that_is_there_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import gpushm.sglang

    (tmp_path / "sglang" / "private").mkdir(parents=True)
    (tmp_path / "sglang" / "private" / "__init__.py").touch()
    (tmp_path / "sglang" / "private" / "private_model_loader.py").write_text("PrivateModelLoader = 'theirs'")
    monkeypatch.delitem(sys.modules, "sglang.private.private_model_loader")
    monkeypatch.setattr(sys.modules["sglang"], "__path__", [str(tmp_path / "sglang")])
    gpushm.sglang.register()
    found = importlib.import_module("sglang.private.private_model_loader")
    assert found.PrivateModelLoader == "theirs"
    monkeypatch.delitem(sys.modules, "sglang.private")


def test_an_option_that_is_not_known_is_refused(models: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has no option nonsense, but fallback, size, timeout"):
        engine(models["llama"], model_loader_extra_config={"nonsense": 1})


def test_the_second_engine_has_the_memory_of_the_first(models: dict[str, str], kind: str) -> None:
    first = engine(models[kind])
    (found,) = gpushm.ls()
    assert found.name.startswith("sglang/") and found.state == "sealed" and found.readers == 1
    second = engine(models[kind])
    assert tiny.addresses(second) == tiny.addresses(first)
    assert all(not p.requires_grad for p in second.parameters()) and not second.training


def test_an_attach_is_equal_to_a_load_from_disk(models: dict[str, str], kind: str) -> None:
    disk = engine(models[kind], "auto")
    first, second = engine(models[kind]), engine(models[kind])
    assert differences(disk, first) == []
    assert differences(disk, second) == []
    assert all(bool(torch.isfinite(p.float()).all()) for p in second.parameters())


def test_scales_of_the_file_are_loaded(models: dict[str, str]) -> None:
    scales = [p for name, p in engine(models["fp8-blocks"]).named_parameters() if "scale" in name]
    assert scales and all(bool((scale > 0).all()) for scale in scales)


def test_marks_of_the_post_processing_are_carried(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As format_ue8m0 of DeepGEMM, which needs a GPU: on the tensor, its module, and the module's method."""
    from sglang.srt.layers.quantization.fp8 import Fp8LinearMethod

    before = Fp8LinearMethod.process_weights_after_loading

    def process(self: Any, layer: torch.nn.Module) -> None:
        before(self, layer)
        layer.weight_scale_inv.format_ue8m0 = True
        layer.layout, self.packed = "packed", 4

    monkeypatch.setattr(Fp8LinearMethod, "process_weights_after_loading", process)
    disk, first, second = (engine(models["fp8-blocks"], how) for how in ("auto", "private", "private"))
    layer = second.model.layers[1].mlp.down_proj
    assert first.model.layers[1].mlp.down_proj.weight_scale_inv.format_ue8m0
    assert (layer.weight_scale_inv.format_ue8m0, layer.layout, layer.quant_method.packed) == (True, "packed", 4)
    assert differences(disk, second) == []


def test_tied_weights_are_tied_again(models: dict[str, str]) -> None:
    engine(models["tied"])
    second = engine(models["tied"])
    assert second.lm_head.weight is second.model.embed_tokens.weight


def test_the_model_outlives_its_engines(models: dict[str, str]) -> None:
    disk = engine(models["llama"], "auto")
    engine(models["llama"])
    gc.collect()
    (found,) = gpushm.ls()
    assert found.readers == 0
    again = engine(models["llama"])
    assert differences(disk, again) == [] and [b.id for b in gpushm.ls()] == [found.id]


def test_a_draft_model_and_another_model_have_buffers_of_their_own(models: dict[str, str]) -> None:
    target, draft, other = engine(models["llama"]), engine(models["llama"], draft=True), engine(models["tied"])
    assert len(set(names())) == 3
    again = engine(models["llama"], draft=True)
    assert tiny.addresses(again) == tiny.addresses(draft) != tiny.addresses(target)
    del other


def test_a_file_that_was_changed_is_another_model(models: dict[str, str]) -> None:
    engine(models["llama"])
    (file,) = Path(models["llama"]).glob("*.safetensors")
    os.utime(file, ns=(1, 1))
    engine(models["llama"])
    assert len(set(names())) == 2


def test_weights_that_were_there_are_preloaded(models: dict[str, str]) -> None:
    first, _ = loaded(models["llama"])
    assert first.preloaded_weights_bytes == 0
    second, model = loaded(models["llama"])
    assert second.preloaded_weights_bytes == gpushm.ls()[0].nbytes
    del model


def damaged(name: str) -> None:
    """A buffer of the engine's name that does not fit."""
    module = torch.nn.ModuleDict({"other": torch.nn.Linear(2, 2)})
    _engine.publish_model(name, module, {}, replace=True).close()


def test_what_does_not_fit_is_loaded_from_disk(models: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    disk = engine(models["llama"], "auto")
    engine(models["llama"])
    damaged(names()[0])
    loader, model = loaded(models["llama"])
    assert differences(disk, model) == [] and loader.preloaded_weights_bytes == 0
    assert "modules that the model lacks" in said(caplog)


def test_after_a_failed_attach_rotary_tables_have_values(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """SGLang keeps them for the whole process, and those of the build on the meta device must not stay."""
    from sglang.srt.layers.rotary_embedding.factory import _ROPE_DICT

    disk = engine(models["llama"], "auto")
    engine(models["llama"])

    def fails(*args: object) -> None:
        raise gpushm.errors.LayoutError(22, "planted")

    _ROPE_DICT.clear()
    monkeypatch.setattr(_engine, "drop_leftovers", fails)
    model = engine(models["llama"])
    assert differences(disk, model) == []
    assert not any(buffer.is_meta for buffer in model.buffers())


def test_without_fallback_it_is_an_error(models: dict[str, str]) -> None:
    engine(models["llama"])
    damaged(names()[0])
    with pytest.raises(gpushm.errors.LayoutError, match="has modules that the model lacks"):
        engine(models["llama"], model_loader_extra_config={"fallback": False})


def test_a_method_that_is_not_proven_is_not_shared(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """FP8 with one scale a tensor: SGLang's own list lacks it, and its post-processing needs a GPU."""
    from sglang.srt.model_loader.loader import DefaultModelLoader

    asked: list[torch.nn.Module] = []

    def load(self: Any, **words: object) -> torch.nn.Module:
        asked.append(torch.nn.Linear(2, 2))
        return asked[-1]

    monkeypatch.setattr(DefaultModelLoader, "load_model", load)
    assert engine(models["fp8"]) is asked[0] and names() == []
    assert "not shared" in said(caplog) and "gpushm.share" in said(caplog)


def test_options_that_move_weights_are_not_shared(models: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    from sglang.srt.runtime_context import get_exec

    with get_exec().moe.override(enable_eplb=True):
        engine(models["llama"])
    assert names() == [] and "moe.enable_eplb moves weights" in said(caplog)


def test_tensors_that_no_buffer_has_are_not_shared(
    models: dict[str, str], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As those that DeepSeek's load makes of its weights."""
    from sglang.srt.models.llama import LlamaForCausalLM

    before = LlamaForCausalLM.load_weights

    def load(self: Any, weights: Any) -> None:
        before(self, weights)
        self.model.layers[0].self_attn.w_kc = torch.ones(2)

    monkeypatch.setattr(LlamaForCausalLM, "load_weights", load)
    assert engine(models["llama"]).model.layers[0].self_attn.w_kc.sum() == 2
    assert names() == [] and "model.layers.0.self_attn.w_kc" in said(caplog)


def test_another_layout_is_another_buffer(models: dict[str, str]) -> None:
    from sglang.srt.runtime_context import get_exec

    engine(models["llama"])
    options = dict(_options())
    name = next(name for name in options if name.endswith("fp8_gemm_runner_backend"))
    group, _, leaf = name.rpartition(".")
    with (getattr(get_exec(), group) if group else get_exec()).override(**{leaf: "triton"}):
        engine(models["llama"])
    assert len(set(names())) == 2


def _options() -> Any:
    from gpushm.sglang._loader import _options_of
    from sglang.srt.runtime_context import get_exec

    return _options_of(get_exec())


def test_sglang_refuses_to_write_to_shared_weights(models: dict[str, str]) -> None:
    from sglang.srt.model_executor.model_runner_components import weight_updater

    assert weight_updater._unsupported_derived_weight_cache_error(engine(models["llama"], "auto")) is None
    for _ in range(2):  # published, and attached
        answer = weight_updater._unsupported_derived_weight_cache_error(engine(models["llama"]))
        assert answer and "shared by gpushm" in answer


def test_another_users_model_is_not_trusted(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    engine(models["llama"])
    gc.collect()
    monkeypatch.setattr("gpushm._models.is_trusted", lambda uid: False)
    model = engine(models["llama"])
    assert gpushm.ls()[0].readers == 0 and not _engine.is_shared(model)


def test_the_log_says_who_published_and_who_attached(models: dict[str, str], caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("sglang.gpushm").setLevel(logging.INFO)
    for _ in range(2):
        engine(models["llama"])
    assert said(caplog).split()[1] == "published" and "gpushm: attached to" in said(caplog)


@pytest.mark.parametrize("defect", ["bytes", "stride", "mark", "missing", "module's mark", "method's mark"])
def test_a_planted_defect_is_found(models: dict[str, str], defect: str) -> None:
    disk, other = engine(models["fp8-blocks"], "auto"), engine(models["fp8-blocks"])
    layer = other.model.layers[0].mlp.down_proj
    weight = layer.weight
    if defect == "bytes":
        flipped = weight.view(torch.uint8).bitwise_xor(1).view(weight.dtype)
        layer.weight = torch.nn.Parameter(flipped, requires_grad=False)
        layer.weight.__dict__.update(vars(weight))
    elif defect == "stride":
        layer.weight.data = weight.data.t().contiguous().t()
    elif defect == "mark":
        layer.weight_scale_inv.format_ue8m0 = not getattr(layer.weight_scale_inv, "format_ue8m0", False)
    elif defect == "missing":
        layer.register_parameter("weight", None)
    elif defect == "module's mark":
        layer.layout = "packed"
    else:
        layer.quant_method.use_marlin = 3
    (found,) = differences(disk, other)
    assert "model.layers.0.mlp.down_proj" in found


def test_the_program_of_parity_says_equal(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    assert parity.main([models["llama"], "--engine", "sglang"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("equal: ")


def digest(model: torch.nn.Module) -> float:
    return float(sum(p.double().abs().sum() for p in model.parameters()))


def one_engine(path: str, socket: str | None, pipe: Connection) -> None:
    """In a new process: loads or attaches, and says what its weights are, as often as it is asked."""
    import gpushm.sglang

    torch.set_num_threads(1)
    if socket:
        os.environ["GPUSHM_SOCKET"] = socket
    if not torch.distributed.is_initialized():
        tiny_sglang.start(path)
        gpushm.sglang.register()
    model = engine(path)
    pipe.send([b.readers for b in gpushm.ls()])
    while pipe.recv():
        pipe.send(digest(model))
    os._exit(0)


def engines(n: int, run: Callable[..., None], *arguments: Any) -> list[tuple[Any, Connection]]:
    """Processes, all of which have the model. They start at once."""
    ctx = tiny.processes()
    found = []
    for _ in range(n):
        ours, theirs = ctx.Pipe()
        process = ctx.Process(target=run, args=(*arguments, theirs))
        process.start()
        found.append((process, ours))
    for _, pipe in found:
        assert pipe.poll(300)
        pipe.recv()
    return found


def all_have(found: list[tuple[Any, Connection]], expected: float) -> None:
    """Asks each for its weights, and ends it."""
    for process, pipe in found:
        pipe.send(True)
        assert pipe.recv() == expected
        pipe.send(False)
        process.join(60)
        assert process.exitcode == 0


def test_of_engines_that_start_at_once_one_loads(models: dict[str, str]) -> None:
    expected = digest(engine(models["llama"], "auto"))
    found = engines(3, one_engine, models["llama"], None)
    (buffer,) = gpushm.ls()
    assert buffer.readers == 3
    all_have(found, expected)
    assert gpushm.ls()[0].id == buffer.id


def test_engines_go_on_when_the_daemon_is_killed(models: dict[str, str], other_daemon: Daemon) -> None:
    expected = digest(engine(models["llama"], "auto"))
    found = engines(2, one_engine, models["llama"], other_daemon.socket)
    other_daemon.kill()
    all_have(found, expected)
    other_daemon.start()
    all_have(engines(2, one_engine, models["llama"], other_daemon.socket), expected)


def one_rank(path: str, rank: int, port: int, pipe: Connection) -> None:
    """In a new process: a rank of two, which says what it has shared, and where its weights are."""
    import gpushm.sglang

    torch.set_num_threads(1)
    gpushm.sglang.register()
    tiny_sglang.start(path, rank, 2, port)
    loader, model = loaded(path)
    pipe.send((shared_buffers(model)[0].name, loader.preloaded_weights_bytes, digest(model)))
    pipe.recv()
    os._exit(0)


@pytest.mark.skipif(tiny.GPU and torch.cuda.device_count() < 2, reason="each rank needs a GPU")
def test_each_tensor_parallel_rank_has_its_own_buffer(models: dict[str, str]) -> None:
    first = tiny.both_ranks(one_rank, models["llama"])
    assert len({name for name, _, _ in first}) == 2 and [nbytes for _, nbytes, _ in first] == [0, 0]
    second = tiny.both_ranks(one_rank, models["llama"])
    assert [(name, value) for name, _, value in second] == [(name, value) for name, _, value in first]
    assert all(nbytes > 0 for _, nbytes, _ in second), "both have attached"


def test_the_page_says_what_is_equal(models: dict[str, str]) -> None:
    """Its table has a row for this version, which is what the comparison finds."""
    from importlib.metadata import version

    row = [f"SGLang {version('sglang')}"]
    for kind in SHARED:
        disk, made = engine(models[kind], "auto"), [engine(models[kind]) for _ in range(2)]
        shared = all(map(_engine.is_shared, made))
        row.append("equal" if shared and not any(differences(disk, one) for one in made) else "differs")
    page = Path(__file__).parents[3] / "client" / "python" / "ENGINES.md"
    assert f"| {' | '.join(row)} |" in page.read_text().splitlines()
