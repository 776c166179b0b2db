# SPDX-License-Identifier: MIT
"""gpushm.cuda_core with the real cuda.core, over the fake driver: the sample's steps, and cuda.core's IPC scenarios.

The scenarios are those of cuda.core's own tests of memory between processes, as far as they use public names. These
have no counterpart:

- IPC events, VirtualMemoryResource and get_ipc_descriptor() of other resources: they need no resource of ours.
- register() and from_registry(): a Buffer's pickle has all that another process needs, so a Buffer of a resource that
  was not sent arrives, too.
- An fd of the pool as an int, by send_handle(), and descriptors of bytes: an allocation_handle and an ipc_descriptor
  are objects that can be pickled, and the daemon checks who opens what.
- peer_accessible_by: a resource for another GPU's pool maps its memory for its own GPU.
- An arrived resource that refuses to allocate: ours allocates.
"""

from __future__ import annotations

import inspect
import multiprocessing as mp
import multiprocessing.resource_tracker
import os
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import gpushm
import pytest

core = pytest.importorskip("cuda.core")

from gpushm import cuda_core  # noqa: E402
from gpushm.cuda_core import (  # noqa: E402
    Buffer,
    DeviceMemoryResource,
    DeviceMemoryResourceOptions,
    PinnedMemoryResource,
    PinnedMemoryResourceOptions,
)

# Of the GPU that the processes work on.
KINDS = {p.name: p.kind for p in gpushm.pools() if p.kind != "host" and not p.failed and not p.device}
if not KINDS:
    pytest.skip("no driver", allow_module_level=True)
spawn = mp.get_context("spawn")
NBYTES, SECONDS = 64, 60


@pytest.fixture(scope="module", autouse=True)
def started(warmed_up: None) -> None:
    """Makes what a process makes once: the tracker of multiprocessing, and cuda.core's context."""
    multiprocessing.resource_tracker.ensure_running()
    core.Device(0).set_current()
    DeviceMemoryResource(0).allocate(1).close()


@pytest.fixture(params=KINDS)
def pool(request: pytest.FixtureRequest) -> str:
    """Each pool that a GPU reaches."""
    return str(request.param)


@pytest.fixture
def mr(pool: str) -> Any:
    return made(pool)


def made(pool: str, max_size: int = 1 << 20, device: int | None = None) -> Any:
    if KINDS[pool] == "pinned":
        return PinnedMemoryResource(PinnedMemoryResourceOptions(max_size=max_size, ipc_enabled=True), pool=pool)
    own = next(p.device for p in gpushm.pools() if p.name == pool)
    options = DeviceMemoryResourceOptions(max_size=max_size, ipc_enabled=True)
    return DeviceMemoryResource(core.Device(own if device is None else device), options=options, pool=pool)


def stream() -> Any:
    return core.Device(0).default_stream


def fill(buffer: Any, value: int) -> None:
    buffer.fill(value, stream=stream())
    stream().sync()


def read(buffer: Any) -> bytes:
    with gpushm.as_array(buffer) as a:
        return bytes(a.copy_to_host().tobytes())


def has(buffer: Any, value: int) -> bool:
    return read(buffer) == bytes([value]) * buffer.size


def joined(*processes: Any) -> None:
    for p in processes:
        p.join(SECONDS)
        if p.exitcode is None:
            p.kill()
        assert p.exitcode == 0


def ended(*queues: Any) -> None:
    """Waits for the threads that feed queues, which have descriptors."""
    for q in queues:
        q.close()
        q.join_thread()


def started_with(target: Callable[..., None], *args: Any) -> Any:
    p = spawn.Process(target=target, args=args)
    p.start()
    return p


# ---- a resource and its Buffers ----


def test_a_buffer_is_cuda_cores_and_ends_at_its_close(mr: Any, pool: str) -> None:
    buffer = mr.allocate(4096, stream=stream())
    assert isinstance(buffer, core.Buffer) and isinstance(mr, core.MemoryResource)
    assert buffer.size == 4096 and buffer.memory_resource is mr and not buffer.is_mapped and not mr.is_mapped
    assert mr.is_ipc_enabled and mr.is_device_accessible and not mr.is_managed
    assert mr.is_host_accessible == buffer.is_host_accessible == (KINDS[pool] == "pinned")
    assert mr.device_id == (-1 if KINDS[pool] == "pinned" else 0) and buffer.is_device_accessible
    fill(buffer, 7)
    with gpushm.as_array(buffer) as a:
        assert a.device_ptr == int(buffer.handle) and a.pool == pool and a[4095] == 7
    other = mr.allocate(4096)
    other.copy_from(buffer, stream=stream())
    assert has(other, 7)
    buffer.close(stream())
    other.close()
    assert gpushm.ls() == [] and mr._arrays == {}


def test_a_buffer_that_is_dropped_ends(mr: Any) -> None:
    buffer = mr.allocate(16)
    assert len(gpushm.ls()) == 1
    del buffer
    assert gpushm.ls() == [] and mr._arrays == {}


def test_an_array_of_a_buffer_keeps_the_memory(mr: Any) -> None:
    buffer = mr.allocate(16)
    fill(buffer, 3)
    a = gpushm.as_array(buffer)
    buffer.close()
    assert a.copy_to_host().tobytes() == bytes([3]) * 16
    a.close()


def test_a_buffer_can_get_a_name(mr: Any) -> None:
    buffer = mr.allocate(16)
    fill(buffer, 5)
    with gpushm.as_array(buffer) as a:
        gpushm.rename(a.name, "named")
    with gpushm.open("named") as other:
        assert other.copy_to_host().tobytes() == bytes([5]) * 16
    buffer.close()


def test_a_thread_without_a_context_allocates(mr: Any, capfd: pytest.CaptureFixture[str]) -> None:
    found: list[Any] = []

    def run() -> None:
        found.append(mr.allocate(16))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    found.pop().close()
    assert capfd.readouterr() == ("", "")


def test_a_stream_that_is_none_of_cuda_cores_leaves_nothing(mr: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TypeError):
        mr.allocate(16, stream="no stream")
    assert mr._arrays == {} and mr._taken == 0 and gpushm.ls() == []
    assert capfd.readouterr() == ("", "")


def test_max_size_limits_what_the_buffers_take(pool: str) -> None:
    mr = made(pool, max_size=100)
    buffer = mr.allocate(60)
    with pytest.raises(gpushm.errors.OutOfMemory, match="41 bytes asked; 60 of this resource's max_size, 100"):
        mr.allocate(41)
    mr.allocate(40).close()
    buffer.close()
    mr.allocate(100).close()


def test_a_closed_resource_allocates_no_more(mr: Any) -> None:
    buffer = mr.allocate(16)
    mr.close()
    assert mr.is_closed
    with pytest.raises(RuntimeError, match="has been closed"):
        mr.allocate(16)
    assert len(read(buffer)) == 16
    buffer.close()


def test_defaults_are_those_of_cuda_core() -> None:
    options = DeviceMemoryResourceOptions()
    mr = DeviceMemoryResource(0)
    assert (mr.is_ipc_enabled, mr._max_size) == (options.ipc_enabled, options.max_size) == (False, 0)
    with mr.allocate(16) as buffer, pytest.raises(RuntimeError, match="not IPC-enabled"):
        pickle.dumps(buffer)
    assert DeviceMemoryResource(0, {"ipc_enabled": True}).is_ipc_enabled
    assert PinnedMemoryResource().numa_id == PinnedMemoryResource({"numa_id": 0}).numa_id == 0


@pytest.mark.parametrize("name", ["DeviceMemoryResource", "PinnedMemoryResource"])
@pytest.mark.parametrize("call", ["from_allocation_handle", "deallocate", "close"])
def test_a_call_takes_what_cuda_cores_takes(name: str, call: str) -> None:
    theirs = inspect.signature(getattr(getattr(core, name), call)).parameters
    ours = inspect.signature(getattr(getattr(cuda_core, name), call)).parameters
    assert list(ours) == list(theirs)
    for n, p in theirs.items():
        assert ours[n].default == p.default or p.default is p.empty


def test_the_pool_is_the_first_of_the_device_or_the_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    first = next(p.name for p in gpushm.pools() if p.kind in ("vmm", "mempool"))
    last = [name for name, kind in KINDS.items() if kind != "pinned"][-1]
    assert DeviceMemoryResource(0)._pool.name == first
    monkeypatch.setenv("GPUSHM_CUDA_CORE_POOL", last)
    assert DeviceMemoryResource(0)._pool.name == last
    assert DeviceMemoryResource(0, pool=first)._pool.name == first
    for missing in ("nowhere", "host", "pinned"):
        with pytest.raises(gpushm.errors.NotFound, match=f'no vmm or mempool pool "{missing}"'):
            DeviceMemoryResource(0, pool=missing)
    monkeypatch.delenv("GPUSHM_CUDA_CORE_POOL")
    with pytest.raises(gpushm.errors.NotFound, match="for you, device 7"):
        DeviceMemoryResource(7)
    with pytest.raises(gpushm.errors.NotFound, match="for you, numa_node 5"):
        PinnedMemoryResource(PinnedMemoryResourceOptions(numa_id=5))


def test_memory_is_mapped_for_the_resources_gpu() -> None:
    devices = sorted({p.device for p in gpushm.pools() if p.kind == "vmm" and p.device is not None})
    for device in devices:
        mr = made("gpu0", device=device)
        with mr.allocate(16) as buffer:
            again = pickle.loads(pickle.dumps(buffer))
            assert mr.device_id == again.memory_resource.device_id == device
            with gpushm.as_array(again) as a:
                assert a.pool == "gpu0"
            again.close()


# ---- between processes ----


def of_the_sample(q_in: Any, q_out: Any) -> None:
    device = core.Device(0)
    device.set_current()
    buffer = q_in.get(timeout=SECONDS)
    assert buffer.is_mapped and buffer.size == NBYTES and has(buffer, 100)
    fill(buffer, 200)
    buffer.close()
    q_out.put("done")


def test_the_steps_of_cuda_cores_sample(mr: Any) -> None:
    buffer = mr.allocate(NBYTES, stream=stream())
    fill(buffer, 100)
    to_child, from_child = spawn.Queue(), spawn.Queue()
    child = started_with(of_the_sample, to_child, from_child)
    to_child.put(buffer)
    assert from_child.get(timeout=SECONDS) == "done"
    joined(child)
    ended(to_child, from_child)
    assert has(buffer, 200)
    buffer.close()
    mr.close()


def of_two(mr: Any, seed: int, queue: Any) -> None:
    core.Device(0).set_current()
    buffers = [queue.get(timeout=SECONDS) for _ in range(2)]
    assert all(b.memory_resource is mr for b in buffers) and mr.is_mapped
    fill(buffers[seed], seed)
    for b in buffers:
        b.close()


def test_two_processes_get_two_buffers_each(mr: Any) -> None:
    queues = spawn.Queue(), spawn.Queue()
    buffers = []
    for _ in range(2):
        buffers.append(mr.allocate(NBYTES))
        for q in queues:
            q.put(buffers[-1])
    joined(*(started_with(of_two, mr, seed, q) for seed, q in enumerate(queues)))
    ended(*queues)
    assert [has(b, seed) for seed, b in enumerate(buffers)] == [True, True]


def of_handles(handle: Any, mr: Any, descriptor: Any, first: Any, uuid: Any) -> None:
    core.Device(0).set_current()
    again = type(mr).from_allocation_handle(*(() if mr.device_id < 0 else (0,)), handle)
    assert again is mr and mr.uuid == uuid
    buffers = [first, *(Buffer.from_ipc_descriptor(r, descriptor, stream=stream()) for r in (mr, again))]
    assert len({int(b.handle) for b in buffers}) == 1 and all(b.size == NBYTES for b in buffers)
    for n, writer in enumerate(buffers):
        fill(writer, n)
        assert all(has(b, n) for b in buffers)
    # An arrived resource allocates, too.
    mr.allocate(NBYTES).close()
    buffers[0].close()
    assert has(buffers[1], 2)
    for b in buffers[1:]:
        b.close()


def test_a_handle_a_resource_a_descriptor_and_a_buffer_are_arguments_of_a_process(mr: Any) -> None:
    buffer = mr.allocate(NBYTES)
    joined(started_with(of_handles, mr.allocation_handle, mr, buffer.ipc_descriptor, buffer, mr.uuid))
    assert has(buffer, 2)


def forwards(buffer: Any, queue: Any, done: Any) -> None:
    queue.put(buffer)
    assert done.wait(SECONDS)
    buffer.close()


def fills(queue: Any, done: Any) -> None:
    core.Device(0).set_current()
    buffer = queue.get(timeout=SECONDS)
    fill(buffer, 9)
    buffer.close()
    done.set()


def test_an_arrived_buffer_is_sent_on(mr: Any) -> None:
    buffer = mr.allocate(NBYTES)
    queue, done = spawn.Queue(), spawn.Event()
    joined(started_with(forwards, buffer, queue, done), started_with(fills, queue, done))
    ended(queue)
    assert has(buffer, 9)


kept: list[Any] = []


def keeps(mrs: list[Any]) -> None:
    kept.extend(mrs)


def flips(buffer: Any) -> None:
    core.Device(max(buffer.memory_resource.device_id, 0)).set_current()
    fill(buffer, 255 - read(buffer)[0])
    buffer.close()


def flips_one(n: int, descriptor: Any) -> None:
    flips(Buffer.from_ipc_descriptor(kept[n], descriptor))


def flips_pickle(pickled: bytes) -> None:
    flips(pickle.loads(pickled))


@pytest.mark.parametrize("nmrs", [1, 3])
def test_a_worker_pool_gets_buffers_descriptors_and_pickles(pool: str, nmrs: int) -> None:
    mrs = [made(pool) for _ in range(nmrs)]
    buffers = [mr.allocate(NBYTES) for mr, _ in zip(cycle(mrs), range(7), strict=False)]
    for b in buffers:
        fill(b, 1)
    with spawn.Pool(2, keeps, (mrs,)) as workers:
        workers.map(flips, buffers)
        assert all(has(b, 254) for b in buffers)
        workers.starmap(flips_one, [(mrs.index(b.memory_resource), b.ipc_descriptor) for b in buffers])
        assert all(has(b, 1) for b in buffers)
        workers.map(flips_pickle, [pickle.dumps(b) for b in buffers])
        assert all(has(b, 254) for b in buffers)
        workers.close()
        workers.join()


def dies(pipe: Any, pool: str) -> None:
    core.Device(0).set_current()
    buffer = made(pool).allocate(NBYTES)
    fill(buffer, 77)
    pipe.send(buffer)
    pipe.recv()
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_buffer_outlives_its_killed_maker(pool: str) -> None:
    pipe, other = spawn.Pipe()
    child = started_with(dies, other, pool)
    buffer = pipe.recv()
    pipe.send("die")
    child.join(SECONDS)
    assert child.exitcode == -signal.SIGKILL
    assert has(buffer, 77) and pickle.loads(pickle.dumps(buffer)).size == NBYTES
    buffer.close()
    pipe.close()
    other.close()


def test_a_buffer_that_arrives_twice_is_at_one_address(mr: Any) -> None:
    buffer = mr.allocate(NBYTES)
    one, two = (pickle.loads(pickle.dumps(buffer)) for _ in range(2))
    assert one.is_mapped and one.handle == two.handle == buffer.handle and one.memory_resource is mr
    buffer.close()
    one.close()
    fill(two, 4)
    assert has(two, 4)
    two.close()
    with pytest.raises(RuntimeError, match="closed"):
        pickle.dumps(buffer)


def test_threads_import_one_descriptor_at_once(mr: Any) -> None:
    buffer, barrier = mr.allocate(NBYTES), threading.Barrier(4)
    descriptor, failed = buffer.ipc_descriptor, []

    def run() -> None:
        try:
            barrier.wait()
            for _ in range(20):
                Buffer.from_ipc_descriptor(mr, descriptor).close()
        except BaseException as e:
            failed.append(e)

    threads = [threading.Thread(target=run) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert failed == [] and mr._taken == NBYTES
    buffer.close()


class Irreducible:
    def __reduce__(self) -> Any:
        raise RuntimeError("irreducible")


def takes_none() -> None:
    pass


def takes_one(given: Any) -> None:
    if isinstance(given, Buffer):
        given.close()


@pytest.fixture
def quiet(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    yield
    capfd.readouterr()


@pytest.mark.parametrize("what", ["handle", "resource", "buffer", "descriptor"])
def test_a_process_that_fails_to_start_leaks_nothing(what: str, quiet: None) -> None:
    """nothing_is_left counts."""
    mr = made("gpu0-mempool")
    buffer = mr.allocate(NBYTES)
    handle, descriptor = mr.allocation_handle, buffer.ipc_descriptor
    given = {"handle": handle, "resource": mr, "buffer": buffer, "descriptor": descriptor}[what]
    joined(started_with(takes_one, given))
    bad = started_with(takes_none, given)
    bad.join(SECONDS)
    assert bad.exitcode != 0
    with pytest.raises(RuntimeError, match="irreducible"):
        started_with(takes_one, given, Irreducible())
    bad.close()


def test_what_is_none_of_its_own_is_refused(mr: Any) -> None:
    with mr.allocate(NBYTES) as buffer:
        descriptor = buffer.ipc_descriptor
        with pytest.raises(TypeError, match="incorrect type"):
            Buffer.from_ipc_descriptor(mr, buffer)
        with pytest.raises(TypeError, match="is wanted, not 3"):
            type(mr).from_allocation_handle(*(() if mr.device_id < 0 else (0,)), 3)
    with pytest.raises(gpushm.errors.NotFound):
        Buffer.from_ipc_descriptor(mr, descriptor)
    assert mr._arrays == {} and mr._taken == 0
