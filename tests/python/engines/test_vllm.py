# SPDX-License-Identifier: MIT
"""gpushm.vllm over vLLM's registries: engines share what one has loaded, sleep, and follow a trainer."""

from __future__ import annotations

import gc
import logging
import os
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gpushm
import gpushm.torch as shared
import pytest
import tiny
import torch
from gpushm import _engine

from daemon import Daemon

pytestmark = pytest.mark.usefixtures("vllm")


@pytest.fixture(params=tiny.KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def differences(one: torch.nn.Module, other: torch.nn.Module) -> list[str]:
    from gpushm import parity

    return parity.compared(parity.described(one), parity.described(other))


def names() -> list[str]:
    return [buffer.name for buffer in gpushm.ls() if buffer.name]


def test_the_registries_have_gpushm() -> None:
    from gpushm.vllm import _loader, _sleep, _transfer
    from vllm.config.load import LoadConfig
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
    from vllm.model_executor.model_loader import get_model_loader

    assert type(get_model_loader(LoadConfig(load_format="gpushm"))) is _loader.Loader
    assert SleepModeBackendFactory.get_backend_class("gpushm") is _sleep.Backend
    assert WeightTransferEngineFactory._registry["gpushm"]() is _transfer.Engine


def test_an_option_that_is_not_known_is_refused(models: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="has no option nonsense, but fallback, size, timeout"):
        tiny.engine(models["llama"], model_loader_extra_config={"nonsense": 1})


def test_the_second_engine_has_the_memory_of_the_first(models: dict[str, str], kind: str) -> None:
    first = tiny.engine(models[kind])
    (found,) = gpushm.ls()
    assert found.name.startswith("vllm/") and found.state == "sealed" and found.readers == 1
    second = tiny.engine(models[kind])
    assert tiny.addresses(second) == tiny.addresses(first)
    assert all(not p.requires_grad for p in second.parameters()) and not second.training


def test_an_attach_is_equal_to_a_load_from_disk(models: dict[str, str], kind: str) -> None:
    disk = tiny.engine(models[kind], "auto")
    first, second = tiny.engine(models[kind]), tiny.engine(models[kind])
    assert differences(disk, first) == []
    assert differences(disk, second) == []


def test_a_draft_model_has_a_buffer_of_its_own(models: dict[str, str]) -> None:
    """Also where it has the files of the other model."""
    from types import SimpleNamespace

    from gpushm.vllm import _loader
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    def drafted() -> tuple[int, torch.nn.Module]:
        """The external memory of an engine of both models, and its draft model."""
        config, draft = tiny.config(models["llama"]), tiny.config(models["llama"]).model_config
        config.speculative_config = SimpleNamespace(draft_model_config=draft, enable_adaptive_verification=False)
        with set_current_vllm_config(config):
            loader = get_model_loader(config.load_config)
            nbytes = loader.get_external_weight_memory(config)
            made = loader.load_model(vllm_config=config, model_config=draft)
        _loader._held.clear()  # an engine loads the other model, too
        return nbytes, made

    target = tiny.engine(models["llama"])
    (found,) = gpushm.ls()
    alone, draft = drafted()
    both, again = drafted()
    assert len(gpushm.ls()) == 2
    assert (alone, both) == (found.nbytes, sum(b.nbytes for b in gpushm.ls()))
    assert tiny.addresses(again) == tiny.addresses(draft) != tiny.addresses(target)


def test_buffers_are_private(models: dict[str, str]) -> None:
    """vLLM writes to them when it wakes from level 2."""
    first, second = tiny.engine(models["llama"]), tiny.engine(models["llama"])
    ours = {name: buffer.data_ptr() for name, buffer in first.named_buffers()}
    assert ours and not set(ours.values()) & {buffer.data_ptr() for _, buffer in second.named_buffers()}
    for _, buffer in second.named_buffers():
        buffer.data.copy_(buffer.data.clone())


def test_tied_weights_are_tied_again(models: dict[str, str]) -> None:
    tiny.engine(models["tied"])
    second = tiny.engine(models["tied"])
    assert second.lm_head.weight is second.model.embed_tokens.weight


def test_the_model_outlives_its_engines(models: dict[str, str]) -> None:
    disk = tiny.engine(models["llama"], "auto")
    tiny.engine(models["llama"])
    gc.collect()
    (found,) = gpushm.ls()
    assert found.readers == 0
    again = tiny.engine(models["llama"])
    assert differences(disk, again) == [] and [b.id for b in gpushm.ls()] == [found.id]


def test_another_configuration_is_another_buffer(models: dict[str, str]) -> None:
    tiny.engine(models["llama"])
    tiny.engine(models["tied"])
    assert len({b.name for b in gpushm.ls()}) == 2


def test_weights_of_another_engine_are_external_memory(models: dict[str, str]) -> None:
    from vllm.config import set_current_vllm_config
    from vllm.model_executor.model_loader import get_model_loader

    def external() -> int:
        config = tiny.config(models["llama"])
        with set_current_vllm_config(config):
            return int(get_model_loader(config.load_config).get_external_weight_memory(config))

    assert external() == 0
    tiny.engine(models["llama"])
    gc.collect()
    (found,) = gpushm.ls()
    assert external() == found.nbytes
    assert gpushm.ls()[0].readers == 1, "the lease is held until the load"
    model = tiny.engine(models["llama"])
    assert gpushm.ls()[0].readers == 1
    del model


def damaged(name: str) -> None:
    """A buffer of the engine's name that does not fit."""
    module = torch.nn.ModuleDict({"other": torch.nn.Linear(2, 2)}).to(tiny.DEVICE)
    _engine.publish_model(name, module, {}, replace=True).close()


def test_what_does_not_fit_is_loaded_from_disk(models: dict[str, str]) -> None:
    disk = tiny.engine(models["llama"], "auto")
    tiny.engine(models["llama"])
    damaged(gpushm.ls()[0].name)
    model = tiny.engine(models["llama"])
    assert differences(disk, model) == []
    assert not any(buffer.is_meta for buffer in model.buffers()), "rotary tables of the build that failed are gone"


def test_without_fallback_it_is_an_error(models: dict[str, str]) -> None:
    tiny.engine(models["llama"])
    damaged(gpushm.ls()[0].name)
    with pytest.raises(gpushm.errors.LayoutError, match="has modules that the model lacks"):
        tiny.engine(models["llama"], model_loader_extra_config={"fallback": False})


def test_after_a_fallback_the_same_configuration_works(models: dict[str, str]) -> None:
    """vLLM's own classes would say: Duplicate layer name."""
    tiny.engine(models["llama"])
    damaged(gpushm.ls()[0].name)
    config = tiny.config(models["llama"])
    assert tiny.load(config) is not None
    layers = config.compilation_config.static_forward_context
    assert sorted(layers) == [f"model.layers.{i}.self_attn.attn" for i in range(tiny.LAYERS)]


def test_the_layers_of_an_attach_are_registered(models: dict[str, str]) -> None:
    tiny.engine(models["llama"])
    config = tiny.config(models["llama"])
    model = tiny.load(config)
    layers = config.compilation_config.static_forward_context
    assert all(layers[f"model.layers.{i}.self_attn.attn"] is model.model.layers[i].self_attn.attn for i in (0, 1))


def test_another_users_model_is_not_trusted(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    tiny.engine(models["llama"])
    gc.collect()
    monkeypatch.setattr("gpushm._models.is_trusted", lambda uid: False)
    model = tiny.engine(models["llama"])
    assert gpushm.ls()[0].readers == 0
    with pytest.raises(ValueError, match="no tensor of the module is in a buffer"):
        shared.suspend(model)


def test_reload_weights_follows_the_name(models: dict[str, str]) -> None:
    from vllm.model_executor.model_loader import get_model_loader

    config = tiny.config(models["llama"])
    model = tiny.load(config)
    loader = get_model_loader(config.load_config)
    place = tiny.addresses(model)
    name = gpushm.ls()[0].name
    trained = tiny.engine(models["llama"], "auto")
    for parameter in trained.parameters():
        parameter.data.mul_(2)
    _engine.publish_model(name, trained, {}, replace=True).close()
    loader.load_weights(model, config.model_config)
    assert differences(trained, model) == [] and tiny.addresses(model) == place


class Allocator:
    """In the place of vLLM's CuMemAllocator, which needs a GPU: says what it was told."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def sleep(self, offload_tags: tuple[str, ...]) -> None:
        self.calls.append(("sleep", offload_tags))

    def wake_up(self, tags: list[str] | None) -> None:
        self.calls.append(("wake_up", tags))

    def discard(self, tags: tuple[str, ...]) -> None:
        self.calls.append(("discard", tags))


@pytest.fixture
def allocator(monkeypatch: pytest.MonkeyPatch) -> Allocator:
    found = Allocator()
    monkeypatch.setattr("vllm.device_allocator.get_mem_allocator_instance", lambda: found)
    return found


def backend() -> Any:
    from vllm.device_allocator.sleep_mode_backend import SleepModeBackendFactory

    return SleepModeBackendFactory.get_backend_class("gpushm")()


def away() -> str:
    (found,) = gpushm.ls()
    return f"{found.away}/{found.readers}"


@pytest.mark.parametrize("level", [1, 2])
def test_sleep_unmaps_the_weights_and_wake_brings_them(
    models: dict[str, str], allocator: Allocator, level: int
) -> None:
    disk, model = tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"])
    sleeper = backend()
    assert sleeper.preserves_communicators() and sleeper.state() == "RUNNING"
    sleeper.suspend(level)
    assert away() == "1/1" and sleeper.state() == "SUSPENDED"
    sleeper.resume()
    assert away() == "0/1" and sleeper.state() == "RUNNING"
    assert differences(disk, model) == []
    assert allocator.calls == [("sleep", ("weights", "runtime", "cudagraph")), ("wake_up", None)], "always level 1"


def test_weights_wake_with_their_tag_alone(models: dict[str, str], allocator: Allocator) -> None:
    model = tiny.engine(models["llama"])
    sleeper = backend()
    sleeper.suspend()
    sleeper.resume(["kv_cache"])
    assert away() == "1/1"
    sleeper.resume(["weights"])
    assert away() == "0/1" and allocator.calls[1:] == [("wake_up", ["kv_cache"]), ("wake_up", ["weights"])]
    del model


def test_weights_that_are_discarded_come_back(models: dict[str, str], allocator: Allocator) -> None:
    disk, model = tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"])
    sleeper = backend()
    sleeper.discard(("weights", "kv_cache"))
    assert away() == "1/1" and allocator.calls == [("discard", ("kv_cache",))]
    sleeper.resume()
    assert differences(disk, model) == []


def test_a_sleeper_wakes_with_the_newest_generation(models: dict[str, str], allocator: Allocator) -> None:
    model = tiny.engine(models["llama"])
    trained = tiny.engine(models["llama"], "auto")
    for parameter in trained.parameters():
        parameter.data.mul_(3)
    sleeper = backend()
    sleeper.suspend(2)
    _engine.publish_model(gpushm.ls()[0].name, trained, {}, replace=True).close()
    sleeper.resume()
    assert differences(trained, model) == []


def test_a_sleeper_wakes_with_a_generation_of_another_layout(models: dict[str, str], allocator: Allocator) -> None:
    model = tiny.engine(models["llama"])
    trained = tiny.engine(models["llama"], "auto")
    for layer in trained.model.layers:
        layer.mlp.down_proj.weight.data = layer.mlp.down_proj.weight.data.t().contiguous().t()
    sleeper = backend()
    sleeper.suspend()
    _engine.publish_model(gpushm.ls()[0].name, trained, {}, replace=True).close()
    sleeper.resume()
    assert differences(trained, model) == []


def transfer(config: Any, model: torch.nn.Module) -> Any:
    from vllm.config import WeightTransferConfig
    from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory

    return WeightTransferEngineFactory.create_engine(
        WeightTransferConfig(backend="gpushm"), config, torch.device(tiny.DEVICE), model
    )


def test_a_rollout_worker_follows_a_trainer(models: dict[str, str]) -> None:
    config = tiny.config(models["llama"])
    model = tiny.load(config)
    trained = tiny.engine(models["llama"], "auto")
    made = transfer(config, model)
    made.init_transfer_engine(made.parse_init_info({"name": "policy"}))
    for factor in (2, 3):
        for parameter in trained.parameters():
            parameter.data.mul_(factor)
        _engine.publish_model("policy", trained, {}, replace=True).close()
        made.start_weight_update()
        made.receive_weights(made.parse_update_info({}))
        made.finish_weight_update()
        assert differences(trained, model) == []
    made.shutdown()


def test_an_update_by_a_name_that_no_model_has_is_refused(models: dict[str, str]) -> None:
    config = tiny.config(models["llama"])
    model = tiny.load(config)
    made = transfer(config, model)
    made.init_transfer_engine(made.parse_init_info({"name": "policy"}))
    with pytest.raises(gpushm.errors.NotFound):
        made.receive_weights(made.parse_update_info({}))
    filling = gpushm.create("policy", 4, pool=gpushm.pools()[0].name)
    with pytest.raises(gpushm.errors.NotPublished):
        made.receive_weights(made.parse_update_info({}))
    filling.discard()
    assert differences(tiny.engine(models["llama"], "auto"), model) == []


def test_an_update_without_a_name_is_refused(models: dict[str, str]) -> None:
    config = tiny.config(models["llama"])
    made = transfer(config, tiny.load(config))
    made.init_transfer_engine(made.parse_init_info({}))
    with pytest.raises(ValueError, match="says the name"):
        made.receive_weights(made.parse_update_info({}))


def test_the_log_says_who_published_and_who_attached(
    models: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger("vllm.gpushm").setLevel(logging.INFO)
    for _ in range(2):
        tiny.engine(models["llama"])
    said = [r.getMessage().split()[1] for r in caplog.records if r.name == "vllm.gpushm"]
    assert said == ["published", "attached"]


@pytest.mark.parametrize("defect", ["bytes", "stride", "shape", "mark", "missing", "kind"])
def test_a_planted_defect_is_found(models: dict[str, str], defect: str) -> None:
    disk, other = tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"], "auto")
    layer = other.model.layers[0].mlp.down_proj
    weight = layer.weight
    if defect == "bytes":
        weight.data.view(torch.int16)[3, 5] ^= 1
    elif defect == "stride":
        weight.data = weight.data.t().contiguous().t()
    elif defect == "shape":
        weight.data = weight.data[:-1]
    elif defect == "mark":
        weight.format_ue8m0 = True
    elif defect == "missing":
        layer.register_parameter("weight", None)
    else:
        del layer.weight
        layer.register_buffer("weight", weight.data)
    (found,) = differences(disk, other)
    assert "model.layers.0.mlp.down_proj.weight" in found


def digest(model: torch.nn.Module) -> float:
    return float(sum(p.double().abs().sum() for p in model.parameters()))


def one_engine(path: str, socket: str | None, pipe: Connection) -> None:
    """In a new process: loads or attaches, and says what its weights are, as often as it is asked."""
    import gpushm.vllm

    torch.set_num_threads(1)
    if socket:
        os.environ["GPUSHM_SOCKET"] = socket
    if not torch.distributed.is_initialized():
        tiny.start()
        gpushm.vllm.register()
    model = tiny.engine(path)
    pipe.send([b.readers for b in gpushm.ls()])
    while pipe.recv():
        pipe.send(digest(model))
    os._exit(0)


def engines(path: str, n: int, socket: str | None) -> list[tuple[Any, Connection]]:
    """Processes, all of which have the model. They start at once."""
    ctx = tiny.processes()
    found = []
    for _ in range(n):
        ours, theirs = ctx.Pipe()
        process = ctx.Process(target=one_engine, args=(path, socket, theirs))
        process.start()
        found.append((process, ours))
    for _, pipe in found:
        pipe.recv()
    return found


def one_rank(path: str, rank: int, port: int, pipe: Connection) -> None:
    """In a new process: a rank of two, which says what it has shared, whether it attached, and what its weights are."""
    import gpushm.vllm

    torch.set_num_threads(1)
    tiny.start(rank, 2, port)
    gpushm.vllm.register()
    before = {b.name for b in gpushm.ls()}
    model = tiny.load(tiny.config(path, ranks=2))
    name = gpushm.vllm._loader.models[model]
    pipe.send((name, name in before, digest(model)))
    pipe.recv()
    os._exit(0)


@pytest.mark.skipif(tiny.GPU and torch.cuda.device_count() < 2, reason="two ranks of NCCL need two GPUs")
def test_each_tensor_parallel_rank_has_its_own_buffer(models: dict[str, str]) -> None:
    first = tiny.both_ranks(one_rank, models["llama"])
    assert len({name for name, _, _ in first}) == 2 and not any(attached for _, attached, _ in first)
    second = tiny.both_ranks(one_rank, models["llama"])
    assert second == [(name, True, value) for name, _, value in first]
    assert first[0][2] != first[1][2], "each has its own part"


def test_of_engines_that_start_at_once_one_loads(models: dict[str, str]) -> None:
    expected = digest(tiny.engine(models["llama"], "auto"))
    found = engines(models["llama"], 3, None)
    (buffer,) = gpushm.ls()
    assert buffer.readers == 3
    for process, pipe in found:
        pipe.send(True)
        assert pipe.recv() == expected
        process.kill()
        process.join()
    end = time.monotonic() + 60
    while gpushm.ls()[0].readers and time.monotonic() < end:
        time.sleep(0.01)
    assert gpushm.ls()[0].id == buffer.id, "it outlives engines that are killed"
    assert differences(tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"])) == []


def test_engines_go_on_when_the_daemon_is_killed(models: dict[str, str], other_daemon: Daemon) -> None:
    expected = digest(tiny.engine(models["llama"], "auto"))
    found = engines(models["llama"], 2, other_daemon.socket)
    other_daemon.kill()
    for process, pipe in found:
        pipe.send(True)
        assert pipe.recv() == expected
        pipe.send(False)
        process.join(60)
        assert process.exitcode == 0
    other_daemon.start()
    again = engines(models["llama"], 2, other_daemon.socket)
    for process, pipe in again:
        pipe.send(True)
        assert pipe.recv() == expected
        pipe.send(False)
        process.join(60)


def test_a_full_pool_is_a_load_from_disk(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **words: object) -> None:
        raise gpushm.errors.PoolFull(28, "full")

    monkeypatch.setattr(_engine, "publish", full)
    monkeypatch.setattr("gpushm.torch._memory.Memory.publish", full)
    assert differences(tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"])) == []
    assert names() == []


def test_a_method_that_is_not_proven_is_not_shared(models: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    monkeypatch.setattr(UnquantizedLinearMethod, "supports_pre_processed_weights", False)
    assert differences(tiny.engine(models["llama"], "auto"), tiny.engine(models["llama"])) == []
    assert names() == []


def test_the_program_of_parity_says_equal(models: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    from gpushm import parity

    assert parity.main([models["llama"], "--engine", "transformers"]) == 0
    assert capsys.readouterr().out.startswith("equal: ")


def test_the_page_says_what_is_equal(models: dict[str, str]) -> None:
    """Its table has a row for this version, which is what the comparison finds."""
    from vllm.version import __version__

    row = [__version__]
    for path in map(models.__getitem__, tiny.KINDS):
        disk, made = tiny.engine(path, "auto"), [tiny.engine(path) for _ in range(2)]
        row.append("differs" if any(differences(disk, one) for one in made) else "equal")
    page = Path(__file__).parents[3] / "client" / "python" / "ENGINES.md"
    assert f"| {' | '.join(row)} |" in page.read_text().splitlines()
