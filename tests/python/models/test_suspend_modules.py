# SPDX-License-Identifier: MIT
"""gpushm.torch.suspend(): a module gives its memory back, and computes the same when it has it again."""

from __future__ import annotations

import gpushm
import gpushm.torch as shared
import pytest
import torch
from modules import Tied, seeded, tokens


def published(name: str, device: str) -> Tied:
    shared.publish(name, seeded(device)).close()
    return shared.attach(name, lambda: Tied().eval())


def away(name: str) -> str:
    found = gpushm.stat(name)
    return f"{found.away}/{found.readers + found.writers}"


def test_a_module_computes_the_same_after_it_was_away(name: str, device: str) -> None:
    model = published(name, device)
    before = model(tokens(device)).clone()
    weight = model.embed.weight
    for _ in range(3):
        with shared.suspended(model, idle=False, timeout=10):
            assert away(name) == "1/1"
            assert model.embed.weight is weight and weight.shape == (16, 8)
        assert away(name) == "0/1" and torch.equal(model(tokens(device)), before)


def test_suspend_and_resume_can_be_repeated(name: str, device: str) -> None:
    model = published(name, device)
    shared.suspend(model)
    shared.suspend(model)
    assert away(name) == "1/1"
    shared.resume(model)
    shared.resume(model)
    assert away(name) == "0/1" and torch.equal(model(tokens(device)), seeded(device)(tokens(device)))


def test_all_buffers_of_a_module_go(name: str, device: str) -> None:
    """Also one that is open twice; tensors of no buffer stay."""
    both = torch.nn.ModuleList([published(name, device), torch.nn.Linear(2, 2, device=device)])
    shared.publish("other", seeded(device, seed=2)).close()
    both += [shared.attach("other", lambda: Tied().eval()) for _ in range(2)]
    with shared.suspended(both):
        assert (away(name), away("other")) == ("1/1", "2/2")
        assert both[1](torch.zeros(1, 2, device=device)).shape == (1, 2)
    with shared.suspended(both[2]):
        assert (away(name), away("other")) == ("0/1", "2/2")
    assert torch.equal(both[3](tokens(device)), seeded(device, seed=2)(tokens(device)))
    gpushm.unlink("other")


def test_if_one_buffer_can_not_go_none_does(name: str, device: str) -> None:
    model = published(name, device)
    with gpushm.create("filling", (4,), "f4", pool="host") as a:
        both = torch.nn.ModuleDict({"model": model, "more": torch.nn.Linear(1, 1)})
        both["more"].register_buffer("own", torch.from_dlpack(a))
        with pytest.raises(gpushm.errors.StateError, match="publish it first"):
            shared.suspend(both)
        assert away(name) == "0/1"
        del both
        a.discard()
    assert torch.equal(model(tokens(device)), seeded(device)(tokens(device)))


def test_a_module_without_shared_memory_is_refused() -> None:
    for module in (seeded(), torch.nn.LazyLinear(3), torch.nn.ReLU(), Tied().to("meta")):
        for call in (shared.suspend, shared.resume):
            with pytest.raises(ValueError, match="no tensor of the module is in a buffer"):
                call(module)
