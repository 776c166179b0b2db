# SPDX-License-Identifier: MIT
"""Numba's memory manager: arenas, reuse, handles in other processes, names, and memory that is short."""

from __future__ import annotations

import ctypes
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
from itertools import pairwise
from typing import Any

import gpushm
import numpy as np
import pytest
from gpushm.numba import MemoryManager, publish
from numba import cuda
from numba.cuda.cudadrv.driver import CudaAPIError

from daemon import Daemon

MIB = 1 << 20
POOL = next(p for p in gpushm.pools() if p.kind == "vmm" and p.device == 0)
FAKE = hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_handed_out")
OPENED = "import sys, numpy, gpushm.numba; from numba import cuda; gpushm.numba.MemoryManager; "


def allocated() -> int:
    return sum(b.allocated for b in gpushm.ls())


def addresses(arrays: list[Any]) -> list[int]:
    return [int(a.gpu_data.handle) for a in arrays]


def run(code: str, given: bytes = b"") -> bytes:
    """What a new process prints. It is started by a process that ends at once, and so is no child of this one."""
    command = [sys.executable, "-c", OPENED + code]
    script = f"import subprocess, sys; sys.exit(subprocess.run({command!r}).returncode)"
    done = subprocess.run([sys.executable, "-c", script], input=given, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


# ---- arenas ----


def test_ten_thousand_small_arrays_take_a_tenth_more_than_their_bytes() -> None:
    arrays = [cuda.device_array(4096, "uint8") for _ in range(10000)]
    assert allocated() <= 1.1 * 10000 * 4096
    assert len(set(addresses(arrays))) == 10000


@pytest.mark.parametrize("nbytes", [1, 511, 513, 5000, 100_000, 3 * MIB, 5 * MIB])
def test_blocks_are_aligned_and_do_not_overlap(nbytes: int) -> None:
    arrays = [cuda.to_device(np.full(nbytes, i, "uint8")) for i in range(20)]
    starts = sorted(addresses(arrays))
    assert all(s % 512 == 0 for s in starts)
    assert all(b - a >= nbytes for a, b in pairwise(starts))
    assert [int(a.copy_to_host().sum()) for a in arrays] == [i * nbytes for i in range(20)]


@pytest.mark.parametrize("nbytes", [4096, 2 * MIB, 64 * MIB])
def test_freed_memory_is_used_again(nbytes: int) -> None:
    for _ in range(1000):
        cuda.device_array(nbytes, "uint8")
    assert allocated() <= max(nbytes, 16 * MIB)


def test_a_freed_block_waits_for_the_gpu(manager: MemoryManager, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = [cuda.device_array(MIB // 2, "uint8") for _ in range(8)]
    waits: list[int] = []
    monkeypatch.setattr(manager._arenas, "_synchronize", lambda: waits.append(1))
    used = set(addresses(arrays))
    del arrays
    manager.deallocations.clear()
    assert waits == []
    again = [cuda.device_array(MIB // 2, "uint8") for _ in range(8)]
    assert waits == [1] and set(addresses(again)) == used


def test_kept_memory_is_bounded_and_given_back_when_memory_is_short(manager: MemoryManager) -> None:
    # A pool may be as large as its GPU, of which contexts and other programs have a part.
    room = min(POOL.nbytes, cuda.current_context().get_memory_info().free)
    large = POOL.nbytes // 4
    arrays = [cuda.device_array(large, "uint8") for _ in range(3)]
    del arrays
    manager.deallocations.clear()
    assert allocated() <= POOL.nbytes // 16
    first = cuda.device_array(POOL.nbytes // 20, "uint8")
    del first
    # The kept buffer has another size: it has to go.
    rest = [cuda.device_array(room - POOL.nbytes // 25, "uint8")]
    with pytest.raises(CudaAPIError, match=f'pool "{POOL.name}"') as raised:
        for _ in range(50):
            rest.append(cuda.device_array(max(256 * MIB, POOL.nbytes // 200), "uint8"))
    assert "OUT_OF_MEMORY" in str(raised.value) and isinstance(raised.value.__cause__, gpushm.errors.PoolFull)
    del rest
    cuda.device_array(256 * MIB, "uint8")


def test_threads_and_the_garbage_collector_may_allocate_and_free_at_once() -> None:
    class Knot:
        """Ends in the garbage collector."""

        def __init__(self, array: Any) -> None:
            self.me, self.array = self, array

    failed: list[BaseException] = []

    def work(n: int) -> None:
        try:
            for i in range(300):
                array = cuda.to_device(np.full(1000 * (i % 7 + 1), n, "uint8"))
                Knot(cuda.device_array(MIB * (1 + i % 5), "uint8"))
                if i % 50 == 0:
                    gc.collect()
                assert (array.copy_to_host() == n).all()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == []


def test_deferral_is_numbas(manager: MemoryManager) -> None:
    manager.deallocations.clear()
    with cuda.defer_cleanup():
        for _ in range(20):
            cuda.device_array(4096, "uint8")
        assert len(manager.deallocations) == 20
    cuda.device_array(4096, "uint8")
    assert len(manager.deallocations) == 0


def test_what_is_taken_is_shown(manager: MemoryManager) -> None:
    arrays = cuda.device_array(100, "uint8"), cuda.device_array(8 * MIB, "uint8")
    assert f"pool {POOL.name}: 2 arrays; 1 arenas of {2 * MIB} bytes and 1 large arrays of {8 * MIB};" in repr(manager)
    # A buffer that is not published shows no attributes.
    told = [gpushm.stat(b.name).attrs["numba"].decode() for b in gpushm.ls() if b.state == "shared"]
    assert told == [f"arena of 4096 arrays of process {os.getpid()}"]
    del arrays


# ---- choosing ----


def test_a_pool_is_chosen_by_argument_or_environment() -> None:
    other = next((p.name for p in gpushm.pools() if p.kind == "mempool"), POOL.name)
    code = "a = cuda.to_device(numpy.arange(3)); print(cuda.current_context().memory_manager._arenas.pool)"
    assert MemoryManager.using(other).pool == other and MemoryManager.pool is None
    for how in (
        f"cuda.set_memory_manager(gpushm.numba.MemoryManager.using({other!r})); ",
        f"import os; os.environ['GPUSHM_NUMBA_POOL'] = {other!r}; "
        "cuda.set_memory_manager(gpushm.numba.MemoryManager); ",
    ):
        assert run(how + code).decode().strip() == other


def test_numba_is_not_imported_before_it_is_asked_for() -> None:
    code = "import sys, gpushm.numba\nfor _ in (1, 2): print('numba' in sys.modules); gpushm.numba.publish"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).split() == ["False", "True"]


@pytest.mark.parametrize(
    "broken",
    ["import numba.cuda.cudadrv.driver as d; del d.GetIpcHandleMixin", "sys.modules['numba.cuda.cudadrv'] = None"],
)
def test_another_numba_is_refused_with_what_to_install(broken: str) -> None:
    code = f"import sys, gpushm.numba\n{broken}\ntry: gpushm.numba.MemoryManager\nexcept ImportError as e: print(e)"
    assert "needs the package numba-cuda" in subprocess.check_output([sys.executable, "-c", code], text=True)


# ---- handles ----


@pytest.mark.parametrize("n", [10, MIB])
def test_raw_bytes_open_in_a_process_that_is_no_child(n: int) -> None:
    neighbours = [cuda.to_device(np.full(n, i)) for i in range(3)]
    array = cuda.to_device(np.arange(n))
    raw = bytes(array.get_ipc_handle()._ipc_handle.handle.reserved)
    assert len(raw) == 64
    code = (
        f"raw = sys.stdin.buffer.read()\nwith cuda.open_ipc_array(raw, {n}, 'int64') as a:\n"
        "    print(a.copy_to_host().sum()); a.copy_to_device(numpy.zeros(a.shape, 'int64'))"
    )
    assert int(run(code, raw)) == n * (n - 1) // 2
    assert not array.copy_to_host().any() and (neighbours[2].copy_to_host() == 2).all()


def test_a_pickled_handle_needs_no_manager_where_it_is_opened() -> None:
    array = cuda.to_device(np.arange(10))[2:7]
    data = pickle.dumps(array.get_ipc_handle())
    code = "import pickle\nwith pickle.load(sys.stdin.buffer) as a: print(a.copy_to_host().tolist())"
    assert run(code, data).decode().strip() == "[2, 3, 4, 5, 6]"


def test_many_handles_attach_an_arena_once() -> None:
    arrays = [cuda.to_device(np.full(100, i)) for i in range(50)]
    data = pickle.dumps([a.get_ipc_handle() for a in arrays])
    opens = gpushm.ls()[0].opens
    code = (
        "import pickle; hs = pickle.load(sys.stdin.buffer); found = [h.open() for h in hs]; "
        "print(sum(int(a.copy_to_host()[0]) for a in found)); [h.close() for h in hs]"
    )
    assert int(run(code, data)) == sum(range(50))
    assert [b.opens for b in gpushm.ls()] == [opens + 1]


def test_a_closed_arena_stays_attached_for_a_moment() -> None:
    array = cuda.to_device(np.arange(10))
    opens = gpushm.ls()[0].opens
    code = (
        "import pickle; h = pickle.load(sys.stdin.buffer)\n"
        "for _ in range(5):\n    with h as a: print(a.copy_to_host().sum())\n"
        "while gpushm.ls()[0].writers > 1: pass"
    )
    assert run(code, pickle.dumps(array.get_ipc_handle())).split() == [b"45"] * 5
    assert gpushm.ls()[0].opens == opens + 1


STAGED = """
import pickle, sys, numpy, gpushm.numba
from numba import cuda
for device in 0, 1:
    handle = pickle.load(sys.stdin.buffer)._ipc_handle
    with cuda.gpus[device]:
        memory, found = handle.open_staged(cuda.current_context()), numpy.zeros(5, "int64")
        cuda.driver.device_to_host(found, memory, handle.size)
        assert found.tolist() == [2, 3, 4, 5, 6]
        try:
            handle.open_staged(cuda.current_context())
        except ValueError as e:
            print(device, e)
        handle.close()
"""
STAGES = """
import pickle, subprocess, sys, numpy, gpushm.numba
from numba import cuda
array = cuda.to_device(numpy.arange(10))[2:7]
given = pickle.dumps(array.get_ipc_handle()) * 2
subprocess.run([sys.executable, "-c", sys.argv[1]], input=given, check=True)
"""


@pytest.mark.skipif(not FAKE and len(cuda.gpus) < 2, reason="one GPU; our own libcuda can have two")
def test_a_staged_handle_is_copied_to_another_gpu() -> None:
    daemon = Daemon(FAKECUDA_DEVICES="2")
    env = {"GPUSHM_SOCKET": daemon.socket, "FAKECUDA_DEVICES": "2", "NUMBA_CUDA_MEMORY_MANAGER": "gpushm.numba"}
    try:
        words = [sys.executable, "-c", STAGES, STAGED]
        told = subprocess.check_output(words, env=os.environ | env, text=True, timeout=120)
    finally:
        daemon.remove()
    assert told.splitlines() == ["0 IpcHandle is already opened", "1 IpcHandle is already opened"]


HOLDER = (
    "import pickle; h = pickle.load(sys.stdin.buffer); a = h.open(); print('open', flush=True); "
    "sys.stdin.buffer.read(); "
)


@pytest.mark.parametrize("n", [100, MIB])
def test_memory_that_another_process_has_open_is_not_used_again(n: int, manager: MemoryManager) -> None:
    array = cuda.to_device(np.full(n, 7))
    with subprocess.Popen(
        [sys.executable, "-c", OPENED + HOLDER + "print((a.copy_to_host() == 7).all(), flush=True); sys.stdin.read()"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as holder:
        assert holder.stdin and holder.stdout
        pickle.dump(array.get_ipc_handle(), holder.stdin)
        holder.stdin.flush()
        assert holder.stdout.readline() == b"open\n"
        at = int(array.gpu_data.handle)
        del array
        gc.collect()
        manager.deallocations.clear()
        others = [cuda.to_device(np.zeros(n, "int64")) for _ in range(3 if n > 100 else 3000)]
        # A large one is no memory of this process any more, and its address is free.
        assert n > 100 or at not in addresses(others)
        holder.stdin.close()
        assert holder.stdout.read() == b"True\n"
    del others
    manager.deallocations.clear()
    assert manager._arenas is not None
    manager._arenas.settle(kept=0)
    assert gpushm.ls() == []


MAKER = (
    "import os, pickle; cuda.set_memory_manager(gpushm.numba.MemoryManager); a = cuda.to_device(numpy.arange({n})); "
    "sys.stdout.buffer.write(pickle.dumps(a.get_ipc_handle())); sys.stdout.buffer.flush(); sys.stdin.read()"
)


@pytest.mark.parametrize("n", [10, MIB])
def test_the_maker_is_killed_and_who_has_it_open_keeps_it(n: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", OPENED + MAKER.format(n=n)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as maker:
        assert maker.stdout
        handle = pickle.load(maker.stdout)
        array = handle.open()
        maker.send_signal(signal.SIGKILL)
        maker.wait()
        assert array.copy_to_host().sum() == n * (n - 1) // 2
        assert len(gpushm.ls()) == 1
        handle.close()
    assert gpushm.ls() == []
    with pytest.raises(gpushm.errors.NotFound):
        handle.open()


def test_a_name_that_is_another_buffers_by_now_is_not_opened(manager: MemoryManager) -> None:
    array = cuda.to_device(np.arange(10))
    handle = pickle.loads(pickle.dumps(array.get_ipc_handle()))
    name = handle._ipc_handle.handle.reserved[24:].rstrip(b"\0").decode()
    gpushm.unlink(name)
    with gpushm.create(name, 2 * MIB, "uint8", pool=POOL.name, transient=True) as other:
        other.publish("shared")
        with pytest.raises(gpushm.errors.NotFound, match="another one by now"):
            handle.open()


# ---- names ----


def test_a_large_array_is_named_without_a_copy() -> None:
    array = cuda.to_device(np.arange(MIB).reshape(1024, 1024))
    named = publish(array, "large")
    assert named.device_ptr == int(array.gpu_data.handle)
    code = (
        "a = cuda.as_cuda_array(gpushm.open('large', 'r+')); print(a.shape, a.dtype); "
        "a[0, :2].copy_to_device(a[1, :2])"
    )
    assert run(code).decode().strip() == "(1024, 1024) int64"
    assert array.copy_to_host()[0, :3].tolist() == [1024, 1025, 2]
    del named
    assert [b.name for b in gpushm.ls()] == ["large"]
    del array
    cuda.current_context().memory_manager.deallocations.clear()
    cuda.device_array(8 * MIB, "uint8")
    assert "large" not in [b.name for b in gpushm.ls()]


@pytest.mark.parametrize("mode, n", [(0o600, 10), (0o644, 10), (0o644, MIB)])
def test_a_part_of_an_arena_and_another_mode_are_copied(mode: int, n: int) -> None:
    array = cuda.to_device(np.arange(n, dtype="float32"))[1:]
    named = publish(array, "copy", mode=mode)
    assert named.device_ptr != int(array.gpu_data.handle) and gpushm.stat("copy").mode == mode
    assert (cuda.as_cuda_array(gpushm.open("copy")).copy_to_host() == np.arange(n, dtype="float32")[1:]).all()
    del named
    assert gpushm.stat("copy").nbytes == array.nbytes
    assert all(b.mode == 0o600 for b in gpushm.ls() if b.name != "copy")


def test_publish_replaces_and_refuses() -> None:
    one, two = (cuda.to_device(np.full(MIB, i)) for i in (1, 2))
    publish(one, "n")
    with pytest.raises(gpushm.errors.Exists):
        publish(two, "n")
    publish(two, "n", replace=True)
    assert gpushm.open("n")[0] == 2
    elsewhere = cuda.as_cuda_array(gpushm.open("n"))
    with pytest.raises(ValueError, match="not gpushm's"):
        publish(elsewhere, "m")
    records = cuda.to_device(np.zeros(3, [("x", "i4"), ("y", "f8")]))
    assert publish(records, "r").dtype == records.dtype
