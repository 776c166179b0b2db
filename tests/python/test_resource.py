# SPDX-License-Identifier: MIT
"""The memory resource for cuda.core, with a stand-in for cuda.core; gpu/test_cuda_core.py has the real one."""

from __future__ import annotations

import importlib
import os
import pickle
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import gpushm
import pytest


class Buffer:
    """Calls a resource as cuda.core's Buffer does."""

    def __init__(self, handle: int, size: int, mr: Any, owner: Any) -> None:
        self.handle, self.size, self.mr, self.owner = handle, size, mr, owner

    @classmethod
    def from_handle(cls, ptr: int, size: int, mr: Any = None, owner: Any = None) -> Buffer:
        return cls(ptr, size, mr, owner)

    def close(self) -> None:
        self.mr.deallocate(self.handle, self.size)


@pytest.fixture
def resources(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The module of gpushm.MemoryResource."""
    stand_in = ModuleType("cuda.core")
    stand_in.__dict__.update(Buffer=Buffer, MemoryResource=type("MemoryResource", (), {}))
    monkeypatch.setitem(sys.modules, "cuda", ModuleType("cuda"))
    monkeypatch.setitem(sys.modules, "cuda.core", stand_in)
    yield importlib.import_module("gpushm._cuda_core")
    del sys.modules["gpushm._cuda_core"]
    del gpushm._cuda_core


def test_a_buffers_memory_is_mapped_for_the_resources_gpu(pool: str, gpu: int, resources: Any) -> None:
    if pool in ("host", "pinned"):
        return
    devices = sorted({p.device for p in gpushm.pools() if p.kind == "vmm"})
    for device in devices:
        mr = resources.MemoryResource(pool, device=device)
        again = pickle.loads(pickle.dumps(mr))
        assert mr.device_id == again.device_id == device
        buffer = again.allocate(16)
        assert again.array(buffer).__dlpack_device__() == (2, device)
        buffer.close()
    assert resources.MemoryResource(pool).device_id == gpu
    assert resources.MemoryResource(pool, device="current").device_id == 0


def test_a_buffers_memory_is_shared_and_freed_at_its_close(pool: str, resources: Any) -> None:
    mr = resources.MemoryResource(pool, prefix="r", mode=0o640)
    buffer = mr.allocate(4096)
    with mr.array(buffer) as a:
        assert (buffer.handle, buffer.size) == (a.device_ptr or a.host_ptr, 4096)
        assert a.state == "shared" and a.name.startswith("r/") and gpushm.stat(a.name).mode == 0o640
        with gpushm.open(a.name, "r+") as other:
            other[:] = 7
            again = mr.buffer(other[1024:])
            assert again.owner.offset == 1024 and again.size == 3072
            del again
        assert a[4095] == 7
    assert mr.is_device_accessible == (pool != "host") and mr.is_host_accessible == (pool in ("host", "pinned"))
    assert (mr.device_id == -1) == mr.is_host_accessible and "1 Buffers" in repr(mr)
    buffer.close()
    assert gpushm.ls() == [] and "0 Buffers" in repr(mr)
    sent = pickle.loads(pickle.dumps(mr))
    sent.allocate(16).close()


def test_a_buffer_that_somebody_has_unlinked_can_be_closed(pool: str, resources: Any) -> None:
    mr = resources.MemoryResource(pool)
    buffer = mr.allocate(16)
    with mr.array(buffer) as a:
        a.unlink()
    buffer.close()
    assert gpushm.status().leases == 0


def test_a_process_that_ends_frees_its_memory(resources: Any) -> None:
    # nothing_is_left looks for it.
    child = os.fork()
    if child == 0:
        try:
            buffer = resources.MemoryResource("host").allocate(16)
            there = [b.name for b in gpushm.ls()] == [buffer.mr.array(buffer).name]
        finally:
            os._exit(0 if there else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_a_pool_that_is_not_there_is_refused(resources: Any) -> None:
    with pytest.raises(gpushm.errors.NotFound, match="nowhere"):
        resources.MemoryResource("nowhere")
