# SPDX-License-Identifier: MIT
"""gpushm.torch.yields(): a module lets go of its memory by itself, and computes the same when it is used again."""

from __future__ import annotations

import gc
import math
import threading
import time
import weakref
from collections.abc import Callable, Iterator

import gpushm
import gpushm.torch as shared
import pytest
import torch
from gpushm import _yields
from modules import Tied, seeded, tokens


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.001)


@pytest.fixture(autouse=True)
def no_thread() -> Iterator[None]:
    """The thread ends with the last module."""
    yield
    gc.collect()
    _yields._thread.poke()
    until(lambda: _yields._thread.runs is None)
    assert not _yields._said


def published(name: str, device: str, seed: int = 0) -> Tied:
    shared.publish(name, seeded(device, seed=seed)).close()
    return shared.attach(name, lambda: Tied().eval())


def away(name: str) -> str:
    found = gpushm.stat(name)
    return f"{found.away}/{found.readers + found.writers}"


def test_an_idle_module_goes_and_computes_the_same_with_its_next_use(name: str, device: str) -> None:
    model = published(name, device)
    before = model(tokens(device)).clone()
    shared.yields(model, after=0)
    for _ in range(3):
        until(lambda: away(name) == "1/1")
        with gpushm.use(model):
            result = model(tokens(device))
            assert away(name) == "0/1"
        assert torch.equal(result, before)
    gpushm.yields(model, after=3600)
    gpushm.use(model)
    assert torch.equal(model(tokens(device)), before) and away(name) == "0/1"


def test_modules_of_one_buffer_keep_it_for_each_other(name: str, device: str) -> None:
    model = published(name, device)
    other = shared.attach(name, lambda: Tied().eval())
    for module in (model, other, model.embed):
        shared.yields(module, after=0)
    with gpushm.use(model.embed):
        time.sleep(0.05)
        assert away(name) == "0/2" and torch.equal(other(tokens(device)), model(tokens(device)))
    until(lambda: away(name) == "2/2")
    with gpushm.use(other):
        assert torch.equal(other(tokens(device)), model(tokens(device)))


def test_a_module_of_several_buffers_is_there_as_a_whole(name: str, device: str) -> None:
    both = torch.nn.ModuleList([published(name, device), published("other", device)])
    shared.yields(both, after=0)
    until(lambda: (away(name), away("other")) == ("1/1", "1/1"))
    with gpushm.use(both):
        assert torch.equal(both[0](tokens(device)), both[1](tokens(device)))
    gpushm.unlink("other")


def test_a_module_that_dies_yields_no_more(name: str, device: str) -> None:
    model = published(name, device)
    shared.yields(model, math.inf)
    gpushm.use(model)
    seen = weakref.ref(model)
    del model
    gc.collect()
    assert seen() is None and _yields._known == {}
    until(lambda: away(name) == "0/0")


def test_a_module_without_shared_memory_is_refused() -> None:
    for call in (gpushm.use, shared.yields):
        with pytest.raises(ValueError, match="no tensor of the module is in a buffer"):
            call(seeded())


def test_threads_that_compute_are_never_unmapped(name: str, device: str) -> None:
    model = published(name, device)
    expected = model(tokens(device)).clone()
    shared.yields(model, after=0)
    wrong: list[object] = []

    def compute() -> None:
        for i in range(200):
            with gpushm.use(model):
                if not torch.equal(model(tokens(device)), expected):
                    wrong.append(i)
            if i % 20 == 0:
                time.sleep(0.01)

    threads = [threading.Thread(target=compute) for _ in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
