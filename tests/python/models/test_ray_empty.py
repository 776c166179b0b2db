# SPDX-License-Identifier: MIT
"""gpushm.ray's memory for PyTorch's tensors, without Ray."""

from __future__ import annotations

import gc
import weakref

import gpushm
import torch
from gpushm.ray import _store


def test_memory_of_empty_is_not_used_again_while_a_tensor_lies_there() -> None:
    store = _store.Store()
    part = _store.tensor(store.lend(4096), (256,), torch.float32, 1024)
    gc.collect()
    other = _store.tensor(store.lend(4096), (4096,), torch.uint8)
    part.fill_(2)
    other.fill_(0)
    assert part.sum() == 2 * 256
    address = part.data_ptr() - 1024
    del part
    gc.collect()
    again = _store.tensor(store.lend(4096), (4096,), torch.uint8)
    assert again.data_ptr() == address


def test_a_tensor_that_is_received_says_when_it_ends() -> None:
    made = gpushm.create_many(None, {"bytes": torch.ones(64)}, pool=_store.pool(None))
    name = made.name
    made.publish()
    read = gpushm.open_many(name, "c")
    done: list[str] = []
    whole = read.array((read.nbytes,), "uint8")
    weakref.finalize(whole, done.append, name)
    part = _store.tensor(whole, (16,), torch.float32)
    del whole
    gc.collect()
    assert part.sum() == 16 and not done
    del part
    gc.collect()
    assert done == [name]
