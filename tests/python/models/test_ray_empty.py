# SPDX-License-Identifier: MIT
"""gpushm.ray's memory for PyTorch's tensors, without Ray."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import gpushm
import torch
from gpushm.ray import _store


def tensor(array: Any, shape: tuple[int, ...], dtype: torch.dtype, at: int = 0) -> torch.Tensor:
    """One over the array's bytes."""
    made: list[torch.Tensor] = _store.views(array, [(shape, dtype, at)], True)
    return made[0]


def test_memory_of_empty_is_not_used_again_while_a_tensor_lies_there() -> None:
    store = _store.Store()
    part = tensor(store.lend(4096), (256,), torch.float32, 1024)
    gc.collect()
    other = tensor(store.lend(4096), (4096,), torch.uint8)
    part.fill_(2)
    other.fill_(0)
    assert part.sum() == 2 * 256
    address = part.data_ptr() - 1024
    del part
    gc.collect()
    again = tensor(store.lend(4096), (4096,), torch.uint8)
    assert again.data_ptr() == address


def test_a_tensor_that_is_received_says_when_it_ends() -> None:
    made = gpushm.create_many(None, {"bytes": torch.ones(64)}, pool=_store.pool(None))
    name = made.name
    made.publish()
    read = gpushm.open_many(name, "c")
    done: list[str] = []
    whole = read.array((read.nbytes,), "uint8")
    weakref.finalize(whole, done.append, name)
    part = tensor(whole, (16,), torch.float32)
    del whole
    gc.collect()
    assert part.sum() == 16 and not done
    del part
    gc.collect()
    assert done == [name]


def test_autograd_tells_the_tensors_of_an_object_apart() -> None:
    described = [((16,), torch.float32, 64 * i) for i in range(2)]
    one, other = _store.views(_store.Store().lend(4096), described, True)
    weight = torch.ones(16, requires_grad=True)
    loss = (one * weight).sum()
    other.add_(1)
    loss.backward()
    assert weight.grad is not None and torch.equal(weight.grad, one)
