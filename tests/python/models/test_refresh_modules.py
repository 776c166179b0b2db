# SPDX-License-Identifier: MIT
"""gpushm.torch.refresh(): workers follow the generations that a trainer publishes, between two forwards."""

from __future__ import annotations

import multiprocessing as mp
from collections.abc import Callable
from multiprocessing.connection import Connection

import gpushm
import gpushm.torch as shared
import pytest
import torch
from modules import Tied, seeded, tokens

WORKERS = 8


def generation(name: str, seed: int, device: str = "cpu") -> None:
    shared.publish(name, seeded(device, seed=seed), replace=True).close()


def worker(name: str, device: str) -> Tied:
    return shared.attach(name, lambda: Tied().eval())


def is_seed(model: Tied, seed: int, device: str) -> bool:
    return torch.equal(model(tokens(device)), seeded(device, seed=seed)(tokens(device)))


def test_a_worker_follows_at_the_same_addresses(name: str, device: str) -> None:
    generation(name, 1, device)
    model = worker(name, device)
    weight, view, place = model.embed.weight, model.embed.weight[1:], model.embed.weight.data_ptr()
    for seed in (2, 3):
        assert is_seed(model, seed - 1, device)
        generation(name, seed, device)
        assert is_seed(model, seed - 1, device), "nothing changes before the call"
        assert shared.refresh(model, name) is True
        assert is_seed(model, seed, device)
        assert model.embed.weight is weight is model.head.weight and weight.data_ptr() == place
        assert torch.equal(view, seeded(device, seed=seed).embed.weight[1:])
    assert len(gpushm.ls()) == 1, "the old generations are gone"


def test_without_a_new_generation_nothing_happens(name: str, device: str) -> None:
    generation(name, 1, device)
    model = worker(name, device)
    assert shared.refresh(model, name) is False
    gpushm.unlink(name)
    assert shared.refresh(model, name) is False
    with gpushm.create(name, (4,), "f4", pool="host") as filling:
        assert shared.refresh(model, name) is False
        filling.discard()
    assert is_seed(model, 1, device)


def test_a_rollback_by_mv_is_followed(name: str, device: str) -> None:
    generation(name, 1, device)
    model = worker(name, device)
    gpushm.rename(name, "before")
    generation(name, 2, device)
    assert shared.refresh(model, name) and is_seed(model, 2, device)
    gpushm.rename("before", name, replace=True)
    assert shared.refresh(model, name) and is_seed(model, 1, device)


def test_all_modules_of_the_memory_follow(name: str, device: str) -> None:
    generation(name, 1, device)
    one, other = worker(name, device), worker(name, device)
    generation(name, 2, device)
    assert shared.refresh(one, name)
    assert is_seed(one, 2, device) and is_seed(other, 2, device)
    assert not shared.refresh(other, name)


def test_a_trainer_that_keeps_its_own_lease_is_followed(name: str, device: str) -> None:
    with shared.publish(name, seeded(device)):
        model = worker(name, device)
    with shared.publish(name, seeded(device, seed=2), replace=True):
        assert shared.refresh(model, name) and is_seed(model, 2, device)
    assert is_seed(model, 2, device)


def test_private_copies_get_the_new_values(name: str, device: str) -> None:
    generation(name, 1, device)
    model = shared.attach(name, lambda: Tied().eval(), writable="layers.0.*")
    own = model.layers[0].weight
    own.zero_()
    generation(name, 2, device)
    assert shared.refresh(model, name)
    assert model.layers[0].weight is own and is_seed(model, 2, device)
    own.zero_()


def test_another_layout_becomes_new_tensors(name: str, device: str) -> None:
    generation(name, 1, device)
    model = shared.attach(name, lambda: Tied().eval(), writable="layers.0.*")
    trained = seeded(device, seed=2)
    trained.layers[1].weight.data = trained.layers[1].weight.data.t().contiguous().t()
    shared.publish(name, trained, replace=True).close()
    assert shared.refresh(model, name)
    assert model.layers[1].weight.stride() == (1, 8) and torch.equal(model(tokens(device)), trained(tokens(device)))
    model.layers[0].weight.zero_()
    generation(name, 3, device)
    assert shared.refresh(model, name) and is_seed(model, 3, device)


def test_what_does_not_fit_leaves_the_module_as_it_was(
    name: str, device: str, raises: Callable[..., str]
) -> None:
    generation(name, 1, device)
    model = worker(name, device)
    shared.publish(name, {"embed.weight": torch.zeros(2, 2, device=device)}, replace=True).close()
    assert "is in the module only" in raises(gpushm.errors.LayoutError, shared.refresh, model, name)
    assert is_seed(model, 1, device)
    generation(name, 2, device)
    assert shared.refresh(model, name) and is_seed(model, 2, device)


def test_another_name_can_be_followed(name: str, device: str) -> None:
    generation(name, 1, device)
    generation("other", 2, device)
    model = worker(name, device)
    assert shared.refresh(model, "other") and is_seed(model, 2, device)
    assert shared.refresh(model, name) and is_seed(model, 1, device)
    gpushm.unlink("other")


def test_a_suspended_module_comes_back_with_the_newest(name: str, device: str) -> None:
    generation(name, 1, device)
    model = worker(name, device)
    shared.suspend(model)
    generation(name, 2, device)
    assert shared.refresh(model, name) and is_seed(model, 2, device)
    shared.suspend(model)
    assert shared.refresh(model, name) and is_seed(model, 2, device)


def test_a_module_without_shared_memory_is_refused(name: str) -> None:
    generation(name, 1)
    with pytest.raises(ValueError, match="no tensor of the module is in a buffer"):
        shared.refresh(seeded(), name)


def rollout(name: str, pipe: Connection) -> None:
    """A worker: follows when it is told, and says what it computes. A forked process has no threads of PyTorch's."""
    torch.set_num_threads(1)
    model = worker(name, "cpu")
    pipe.send("attached")
    while pipe.recv():
        before = model.embed.weight.data_ptr()
        followed = shared.refresh(model, name)
        pipe.send((followed, model.embed.weight.data_ptr() == before, model(tokens("cpu")).detach().numpy()))


def test_eight_workers_follow_one_copy(name: str) -> None:
    generation(name, 1)
    ctx = mp.get_context("fork")
    pipes, processes = [], []
    for _ in range(WORKERS):
        ours, theirs = ctx.Pipe()
        processes.append(ctx.Process(target=rollout, args=(name, theirs)))
        processes[-1].start()
        pipes.append(ours)
    assert [pipe.recv() for pipe in pipes] == ["attached"] * WORKERS
    for seed in (1, 2, 3):
        generation(name, seed)
        for pipe in pipes:
            pipe.send(True)
        for pipe in pipes:
            followed, in_place, answer = pipe.recv()
            assert followed and in_place
            assert (answer == seeded(seed=seed)(tokens("cpu")).detach().numpy()).all()
        (found,) = gpushm.ls()
        assert found.readers == WORKERS
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(False)
        process.join(60)
        assert process.exitcode == 0
