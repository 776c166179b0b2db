# SPDX-License-Identifier: MIT
"""gpushm.torch.memory(): what PyTorch allocates in a section lies in a buffer, and stays as long as it is used."""

from __future__ import annotations

import ctypes
import gc
import multiprocessing as mp
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import gpushm
import gpushm.torch as shared
import pytest
import torch
from gpushm import _core
from gpushm.torch import _memory
from modules import Tied, seeded, tokens

Raises = Callable[..., str]
ALLOCATOR = ctypes.CDLL(_core.__file__)
ALLOCATOR.gpushm_torch_alloc.argtypes = [ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
ALLOCATOR.gpushm_torch_alloc.restype = ctypes.c_void_p
ALLOCATOR.gpushm_torch_free.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_void_p]
ALLOCATOR.gpushm_torch_free.restype = None


# ---- the allocator: no GPU is needed ----


def alloc(nbytes: int, device: int = 0) -> int | None:
    found: int | None = ALLOCATOR.gpushm_torch_alloc(nbytes, device, None)
    return found


def test_the_allocator_gives_each_byte_once_and_within_bounds() -> None:
    start = 0x7000_0000_0000
    arena = _core._arena_new(start, 4096, 3)
    assert alloc(512, 3) is None, "no arena is current"
    assert _core._arena_use(arena) == 0
    try:
        assert alloc(1, 2) is None, "another device"
        assert [alloc(1, 3), alloc(700, 3), alloc(512, 3)] == [start, start + 512, start + 1536]
        assert alloc(4096, 3) is None and alloc(-1, 3) is None
        assert alloc(2048, 3) == start + 2048 and alloc(1, 3) is None
        ALLOCATOR.gpushm_torch_free(start + 512, 700, 3, None)
        ALLOCATOR.gpushm_torch_free(start - 1, 700, 3, None)
        ALLOCATOR.gpushm_torch_free(start + 4096, 700, 3, None)
        assert alloc(1, 3) is None, "freed memory is not given away again"
        assert _core._arena_stat(arena) == (4096, 4, 1, 3, 1)
    finally:
        assert _core._arena_use(0) == arena
    _core._arena_drop(arena)
    for call in (_core._arena_drop, _core._arena_stat):
        with pytest.raises(ValueError, match="no arena"):
            call(arena)
    ALLOCATOR.gpushm_torch_free(start, 1, 3, None)


def test_each_thread_allocates_in_its_own_arena() -> None:
    one, two = _core._arena_new(1 << 40, 1 << 20, 0), _core._arena_new(2 << 40, 1 << 20, 0)
    _core._arena_use(one)

    def other() -> tuple[int | None, int | None]:
        first = alloc(512)
        _core._arena_use(two)
        return first, alloc(512)

    with ThreadPoolExecutor(1) as thread:
        assert thread.submit(other).result() == (None, 2 << 40)
    assert alloc(512) == 1 << 40
    _core._arena_use(0)
    for arena in (one, two):
        _core._arena_drop(arena)


def test_a_size_is_read_with_its_unit(raises: Raises) -> None:
    sizes = {5: 5, "5": 5, "2 GiB": 2 << 30, "1.5g": 3 << 29, "64MB": 64 << 20, "64M": 64 << 20}
    for size, nbytes in sizes.items():
        assert shared.memory("model", size)._size == nbytes
    for size in ("", "much", "5 X", "-5", 0, -1):
        raises(ValueError, shared.memory, "model", size)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_memory_without_a_gpu_is_refused_with_the_reason(raises: Raises) -> None:
    assert "memory() needs a GPU" in raises(gpushm.errors.NotSupported, shared.memory("model", 1 << 20).__enter__)
    assert gpushm.ls() == []


# ---- what is left over ----


class Section:
    """That of a Memory, over host memory instead of a GPU's."""

    def __init__(self, name: str, nbytes: int) -> None:
        self.buffer = gpushm.create_many(name, {}, nbytes=nbytes, pool="host")
        self.id = _core._arena_new(1 << 40, nbytes, 0)
        self.device = None

    def end(self) -> bool:
        self.buffer.close()
        _core._arena_drop(self.id)
        return True


@pytest.mark.parametrize("replace", [False, True])
def test_a_buffer_that_is_mostly_unused_is_not_kept(name: str, replace: bool) -> None:
    if replace:
        shared.publish(name, seeded(seed=2)).close()
    mem = shared.memory(name, "100 MiB", replace=replace, pool="host")
    mem._space = Section("~/section" if replace else name, mem._size)  # type: ignore[assignment]
    model = seeded()
    mem.publish(model).close()
    found = gpushm.stat(name)
    assert found.state == "sealed" and found.nbytes < 1 << 20 and "gpushm.content" in found.attrs
    assert torch.equal(shared.attach(name, Tied).embed.weight, model.embed.weight)
    mem.close()
    assert [b.id for b in gpushm.ls()] == [found.id]


def test_tensors_that_others_made_get_memory_of_their_own() -> None:
    table = torch.arange(8)
    view, transposed = table[2:], table.view(2, 4).t()
    other, sparse, empty = torch.arange(3), torch.eye(2).to_sparse(), torch.empty(0)
    start, elsewhere = table.data_ptr(), other.data_ptr()
    _memory.move_out(lambda address: address == start)
    assert table.data_ptr() != start and other.data_ptr() == elsewhere
    assert view.data_ptr() == table.data_ptr() + 16 and transposed.data_ptr() == table.data_ptr()
    table[3] = 30
    assert view.tolist() == [2, 30, 4, 5, 6, 7] and transposed.tolist() == [[0, 4], [1, 5], [2, 6], [30, 7]]
    assert sparse.is_sparse and not empty.numel()


def test_a_full_pool_keeps_the_buffer_as_it_is(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **words: object) -> None:
        raise gpushm.errors.PoolFull(28, "no space")

    monkeypatch.setattr(shared, "publish", full)
    mem = shared.memory(name, "100 MiB", pool="host")
    mem._space = Section(name, mem._size)  # type: ignore[assignment]
    assert not mem._publish_copy(seeded(), None, True)
    assert gpushm.stat(name).state == "filling"
    mem._open().buffer.unlink()
    mem.close()


# ---- sections ----


def buffer_of(mem: shared.Memory) -> Any:
    return mem._open().buffer


def inside(mem: shared.Memory, tensor: torch.Tensor) -> bool:
    start = buffer_of(mem).device_ptr or 0
    return start <= tensor.data_ptr() < start + mem.nbytes


def forward() -> list[float]:
    got = shared.attach("model", Tied, timeout=60)
    return list(got(tokens("cuda"))[0, 0].tolist())


def test_a_model_of_a_section_lies_in_the_buffer(gpu: str, name: str, raises: Raises) -> None:
    with shared.memory(name, "64 MiB") as mem:
        model = seeded(gpu)
        scratch = torch.empty(1 << 20, device=gpu)
        assert all(inside(mem, t) for t in (*model.parameters(), model.inv_freq, model.steps, scratch))
        del scratch
        mem.publish(model)
    after = torch.empty(1 << 20, device=gpu)
    assert not inside(mem, after)
    here = buffer_of(mem).device_ptr or 0
    arrays = {n: a.offset for n, a in buffer_of(mem).items()}
    assert arrays["embed.weight"] == model.embed.weight.data_ptr() - here == arrays["head.weight"]
    expected = model(tokens(gpu))[0, 0].tolist()
    with mp.get_context("spawn").Pool(1) as workers:
        assert workers.apply(forward) == expected
    assert buffer_of(mem).state == "sealed" and mem.used > 0
    assert "delete the tensors" in raises(gpushm.errors.InUse, mem.close)
    del model
    gc.collect()
    mem.close()


def test_what_others_made_in_the_section_does_not_keep_the_buffer(gpu: str, name: str) -> None:
    with shared.memory(name, "128 MiB") as mem:
        table, model = torch.arange(8, device=gpu), seeded(gpu)
        published = mem.publish(model)
    shared.attach(name, model)
    assert inside(mem, table)
    mem.leave_others()
    assert not inside(mem, table) and table.tolist() == list(range(8))
    del mem
    gc.collect()
    _memory._end_unused()
    assert [buffer.name for buffer in gpushm.ls()] == [name]
    published.close()


def test_tensors_from_outside_are_copied_in(gpu: str, name: str, raises: Raises) -> None:
    with shared.memory(name, "8 MiB") as mem:
        model = seeded()
        model.embed.to(gpu)
        model.head.weight = model.embed.weight
    inner, got = model.embed.weight.detach().cpu(), mem.publish(model)
    assert torch.equal(got["layers.0.weight"].cpu(), model.layers[0].weight)
    assert torch.equal(got["inv_freq"].cpu(), model.inv_freq)
    got.close()
    assert torch.equal(model.embed.weight.cpu(), inner), "close() of the mapping has ended the section's memory"
    gpushm.unlink(name)
    with shared.memory(name, "4 MiB") as small:
        text = raises(gpushm.errors.TooLarge, small.publish, {"large": torch.zeros(8 << 20)})
        assert "'large'" in text and "larger size" in text
        small.publish({"small": torch.zeros(8, device=gpu)})


def test_a_full_buffer_is_explained(gpu: str) -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError) as raised, shared.memory("model", "32 MiB"):
        kept = [torch.empty(24 << 20, dtype=torch.uint8, device=gpu) for _ in range(2)]
    assert "memory() is full" in "".join(raised.value.__notes__)
    assert not gpushm.ls("model")
    kept = None  # noqa: F841
    del raised


def test_nested_sections_are_refused(gpu: str, name: str, raises: Raises) -> None:
    with shared.memory(name, "8 MiB") as mem:
        assert "within another" in raises(gpushm.errors.StateError, shared.memory("other", "8 MiB").__enter__)
        assert "within another" in raises(gpushm.errors.StateError, mem.__enter__)
        t = torch.ones(8, device=gpu)
        assert inside(mem, t)
        mem.publish({"t": t})
    assert not gpushm.ls("other")


def test_memory_lasts_as_long_as_its_tensors(gpu: str, name: str) -> None:
    """pytorch#146431: a tensor that outlives its pool is given to cudaFree()."""

    def build() -> torch.Tensor:
        with shared.memory(name, "8 MiB") as mem:
            t = torch.arange(1 << 16, device=gpu)
            mem.publish({"t": t})
        return t

    t = build()
    gc.collect()
    torch.cuda.empty_cache()
    assert int(t.sum()) == sum(range(1 << 16))
    assert gpushm.stat(name).writers + gpushm.stat(name).readers == 1
    del t
    torch.cuda.empty_cache()
    with shared.memory("other", "8 MiB") as other:
        other.publish({"t": torch.zeros(1, device=gpu)})
    info = gpushm.stat(name)
    assert info.writers + info.readers == 0, "the next section ends what nobody uses"
    del other
    gc.collect()
    gpushm.unlink("other")


def test_empty_cache_in_a_section_keeps_tensors(gpu: str, name: str) -> None:
    """pytorch#145168."""
    with shared.memory(name, "64 MiB") as mem:
        kept = [torch.full((1 << 18,), i, device=gpu) for i in range(8)]
        del kept[::2]
        torch.cuda.empty_cache()
        kept.append(torch.full((1 << 18,), 9, device=gpu))
        mem.publish({str(i): t for i, t in enumerate(kept)})
    torch.cuda.empty_cache()
    assert [int(t[5]) for t in kept] == [1, 3, 5, 7, 9]


def test_an_exception_frees_the_name(gpu: str) -> None:
    for _ in range(3):
        with pytest.raises(KeyError), shared.memory("model", "8 MiB"):
            t = torch.ones(8, device=gpu)
            raise KeyError
        assert not gpushm.ls("model") and int(t.sum()) == 8
        del t


def test_another_threads_tensors_stay_outside_of_the_buffer(gpu: str, name: str) -> None:
    made: list[torch.Tensor] = []
    with shared.memory(name, "8 MiB") as mem:
        thread = threading.Thread(target=lambda: made.append(torch.ones(8, device=gpu)))
        thread.start()
        thread.join()
        assert not inside(mem, made[0])
        t = torch.ones(8, device=gpu)
        assert inside(mem, t)
        mem.publish({"t": t})


def test_replace_takes_the_name_at_publication(gpu: str, name: str) -> None:
    shared.publish(name, {"t": torch.zeros(4, device=gpu)})
    with shared.memory(name, "8 MiB", replace=True) as mem:
        t = torch.ones(4, device=gpu)
        with shared.open(name) as old:
            assert int(old["t"].sum()) == 0
        mem.publish({"t": t})
    with shared.open(name) as new:
        assert int(new["t"].sum()) == 4


# In a process of its own: an illegal access would end the use of the GPU.
WORKSPACE = """
import torch, gpushm, gpushm.torch
a = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
with gpushm.torch.memory("model", "100 MiB") as mem:
    w = torch.randn(512, 512, device="cuda", dtype=torch.bfloat16)
    inner = a @ w
    mem.publish({"w": w})
for _ in range(3):
    out = (a @ w).float() @ torch.randn(512, 512, device="cuda")
torch.cuda.synchronize()
print(torch.equal(a @ w, inner))
"""


def test_cublas_computes_the_same_after_the_section(
    gpu: str, name: str, in_child: Callable[..., str]
) -> None:
    assert in_child(WORKSPACE) == "True\n"


# pytorch#147851: the section works, or says why not.
EXPANDABLE = """
import torch, gpushm, gpushm.torch
torch.zeros(1, device="cuda")
try:
    with gpushm.torch.memory("model", "64 MiB") as mem:
        t = torch.ones(1 << 20, device="cuda")
        mem.publish({"t": t})
    start = mem._open().buffer.device_ptr
    print("inside" if start <= t.data_ptr() < start + mem.nbytes else "outside", int(t.sum()))
except gpushm.errors.NotSupported as e:
    print("refused", "expandable_segments" in str(e))
"""


def test_expandable_segments_lie_in_the_buffer_or_are_refused(gpu: str, in_child: Callable[..., str]) -> None:
    said = in_child(EXPANDABLE, PYTORCH_CUDA_ALLOC_CONF="expandable_segments:True")
    assert said.split() in (["inside", str(1 << 20)], ["refused", "True"]), said
    if gpushm.ls("model"):
        gpushm.unlink("model")


DEVICE = """
import torch, gpushm, gpushm.torch
torch.cuda.set_device(0)
mem = gpushm.torch.memory("model", "8 MiB", device=1)
torch.cuda.set_device(1)
with mem:
    t = torch.ones(8, device="cuda:1")
    mem.publish({"t": t})
print(int(t.sum()), mem._open().buffer.device)
"""


def test_a_section_for_another_device_works(gpu: str, name: str, in_child: Callable[..., str]) -> None:
    """pytorch#149802."""
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    assert in_child(DEVICE) == "8 1\n"


def test_a_write_to_a_sealed_model_is_an_illegal_access(gpu: str, name: str, in_child: Callable[..., str]) -> None:
    code = """
import torch, gpushm.torch
with gpushm.torch.memory("model", "8 MiB") as mem:
    t = torch.ones(8, device="cuda")
    mem.publish({"t": t})
print(int(t.sum()), flush=True)
try:
    t.add_(1)
    torch.cuda.synchronize()
except RuntimeError as e:
    print("illegal" in str(e), flush=True)
import os; os._exit(0)
"""
    assert in_child(code).split() == ["8", "True"]


def many(n: int) -> dict[str, Any]:
    return {f"t{i}": torch.randn(64, device="cuda") for i in range(n)}


def test_sections_leak_nothing(gpu: str, name: str) -> None:
    """Generations: each replaces the one before."""
    used = []
    for _ in range(6):
        with shared.memory(name, "64 MiB", replace=True) as mem:
            mem.publish(many(20))
        del mem
        gc.collect()
        gpushm.flush()
        used.append(torch.cuda.mem_get_info()[0])
    assert used[-1] >= used[1], used
