# SPDX-License-Identifier: MIT
"""gpushm.ray: objects of Ray's actors in buffers, on one node and between two."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ray")

import gpushm
import gpushm.ray
import ray
from nodes import Nodes, until

from daemon import BUILD, Daemon

N = 1 << 18
HOLDER = BUILD / "python/gpushm/ray/_holder.py"


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nodes]:
    with Nodes(tmp_path_factory.mktemp("nodes")) as made:
        made.add()
        yield made


class Actor:
    """Makes objects, and reads them."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    @ray.method(tensor_transport="gpushm_numpy")
    def make(self, value: float, n: int = N) -> np.ndarray:
        return np.full(n, value, "f4")

    @ray.method(tensor_transport="gpushm_numpy")
    def make_in_place(self, value: float) -> np.ndarray:
        made = gpushm.ray.empty((4, N // 4), "f4")
        made[...] = value
        return made

    @ray.method(tensor_transport="gpushm_numpy")
    def make_named(self, value: float, state: Any = "sealed") -> np.ndarray:
        """In a buffer with a name of the program's."""
        self.name("test/named", value, state)
        self.kept.append(gpushm.open_many("test/named")["a"])
        return np.asarray(self.kept[-1])

    def name(self, name: str, value: float, state: Any = "sealed") -> None:
        with gpushm.create_many(f"{name}.new", {"a": np.full(N, value, "f4")}) as made:
            made.publish_as(name, state, replace=True)

    @ray.method(tensor_transport="gpushm_numpy")
    def make_many(self, n: int) -> dict[str, list[np.ndarray]]:
        return {"all": [np.arange(i, dtype="i8") for i in range(n)], "two": [np.zeros((2, 3)), np.ones((), "u1")]}

    @ray.method(tensor_transport="gpushm_numpy")
    def forward(self, a: np.ndarray) -> np.ndarray:
        return a[N // 2 :]

    @ray.method(tensor_transport="gpushm_numpy")
    def nothing(self) -> str:
        return "no tensor"

    @ray.method(tensor_transport="gpushm")
    def make_default(self, value: float) -> Any:
        try:
            import torch

            return torch.full((N,), value)
        except ImportError:
            return np.full(N, value, "f4")

    @ray.method(tensor_transport="gpushm")
    def make_shapes(self, at: int) -> Any:
        """In a buffer of this process, the first one at that byte."""
        import torch

        whole = gpushm.ray.empty(4096, torch.uint8).zero_()
        first = torch.from_numpy(np.ndarray((4,), "f4", whole.numpy(), at)).fill_(1.5)
        scalar = whole[128:132].view(torch.float32)[0].fill_(3)
        return [first, whole[64:96].view(torch.bfloat16).fill_(2), scalar, whole[200:200]]

    def shapes(self, tensors: list[Any]) -> list[Any]:
        return [(*t.shape, str(t.dtype), float(t.sum())) for t in tensors]

    def total(self, a: Any) -> float:
        return float(a.sum())

    def write(self, a: Any) -> float:
        a[0] += 1
        return float(a[0])

    def totals(self, d: dict[str, list[np.ndarray]]) -> list[float]:
        return [float(a.sum()) for key in d for a in d[key]]

    def keep(self, a: Any) -> None:
        self.kept.append(a)

    def drop(self) -> float:
        return float(self.kept.pop().sum())

    def kept_now(self) -> int:
        """The objects that it has made and that have not ended."""
        from ray._private.worker import global_worker

        return len(global_worker.rdt_manager.rdt_store._rdt_store)

    def has_manager(self) -> bool:
        from ray._private.worker import global_worker

        return global_worker._rdt_manager is not None

    def is_free(self) -> bool:
        """Nothing is in its slabs."""
        from gpushm.ray._store import store

        return not any(slab.objects for slab in store._slabs)

    def borrow(self, refs: list[Any]) -> float:
        gpushm.ray.register()  # Ray's own call of it may still be under way
        self.kept = refs
        return float(ray.get(refs[0]).sum())

    def own(self, other: Any) -> float:
        gpushm.ray.register()
        self.kept.append(other.make.remote(5.0))
        return float(ray.get(self.kept[0]).sum())

    def put(self, value: float) -> Any:
        gpushm.ray.register()
        return [ray.put(np.full(N, value, "f4"), _tensor_transport="gpushm_numpy")]

    def pid(self) -> int:
        return os.getpid()

    def opens(self, a: np.ndarray) -> int:
        return len(gpushm._core._opened())


def kill(actor: Any) -> None:
    os.kill(ray.get(actor.pid.remote()), signal.SIGKILL)


def empty(nodes: Nodes, seconds: float = 30) -> None:
    until(lambda: not nodes.buffers(0) and not nodes.buffers(1), seconds)


def test_readers_of_a_node_map_an_object_and_it_is_freed_when_nobody_refers_to_it(nodes: Nodes) -> None:
    source, one, two = (nodes.on(Actor, 0) for _ in range(3))
    ref = source.make.remote(2.0)
    assert ray.get([one.total.remote(ref), two.total.remote(ref)]) == [2.0 * N] * 2
    assert len(nodes.buffers()) == 1
    with pytest.raises(ValueError, match="read-only"):
        ray.get(one.write.remote(ref))
    del ref
    empty(nodes)


def test_a_list_of_any_length_is_one_buffer_and_one_open(nodes: Nodes) -> None:
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    ref = source.make_many.remote(300)
    assert ray.get(reader.totals.remote(ref)) == [i * (i - 1) / 2 for i in range(300)] + [0.0, 1.0]
    assert len(nodes.buffers()) == 1 and ray.get(reader.opens.remote(ref)) == 1
    del ref
    empty(nodes)


def test_a_new_actor_has_rays_manager_of_objects_before_two_threads_ask_for_it(nodes: Nodes) -> None:
    from ray._private.worker import global_worker

    reader = nodes.on(Actor, 0)
    global_worker.rdt_manager.wait_until_custom_transports_registered(reader)
    assert ray.get(reader.has_manager.remote())


def test_a_holder_keeps_memory_of_a_gpu(tmp_path: Path) -> None:
    env = {"LD_LIBRARY_PATH": str(BUILD / "fakecuda"), "FAKECUDA_STATE": f"{tmp_path}/gpus"}
    daemon = Daemon("[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n", **env)
    code = """
import socket, gpushm
from gpushm.ray import _holder
made = gpushm.create("o", 4, pool="gpu")
made.publish("sealed")
with socket.socket(socket.AF_UNIX) as s:
    s.connect(_holder.place("127.0.0.1"))
    s.sendall(f"1 keep k o {made.buffer.id}\\n".encode())
    print(s.recv(999).decode())
    s.sendall(b"end k\\n")
"""
    try:
        env = os.environ | env | {"GPUSHM_SOCKET": daemon.socket}
        subprocess.run([sys.executable, "-P", HOLDER, "127.0.0.1"], env=env, check=True, timeout=60)
        words = [sys.executable, "-c", code]
        said = subprocess.run(words, env=env, check=True, timeout=60, capture_output=True, text=True)
        assert said.stdout.startswith("1 ok 127.0.0.1 ")
    finally:
        daemon.remove()


def test_the_holder_reads_on_while_a_process_does_not() -> None:
    """It says "ended" and "room" at any time, also to a process that is sending many lines."""
    daemon = Daemon("[pool host]\nkind=host\nsize=1M\n")
    code = """
import socket
from gpushm.ray import _holder
with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(20)
    s.connect(_holder.place("127.0.0.1"))
    s.sendall(b"room -\\n" * 60000)
    left = 7 * 60000
    while left:
        left -= len(s.recv(1 << 20))
"""
    try:
        env = os.environ | {"GPUSHM_SOCKET": daemon.socket}
        for words in [HOLDER, "127.0.0.1"], ["-c", code]:
            subprocess.run([sys.executable, "-P", *words], env=env, check=True, timeout=60)
    finally:
        daemon.remove()


def test_the_holder_does_without_ray() -> None:
    code = f"import runpy, sys; sys.modules['ray'] = None; runpy.run_path({str(HOLDER)!r})"
    subprocess.run([sys.executable, "-P", "-c", code], check=True, timeout=60)


SEES_ONE_GPU = """
import sys, gpushm
from gpushm.ray import _link
from gpushm.ray._store import store
_link.node_address = lambda: "127.0.0.1"
whole = store.read(_link.here(), "k", ("o", 0), "r", "current")
print(whole.buffer.pool, whole.tolist())
sys.stdin.read()
"""


def test_actors_that_see_another_gpu_share_a_copy(tmp_path: Path) -> None:
    """Ray sets CUDA_VISIBLE_DEVICES."""
    env = {"LD_LIBRARY_PATH": str(BUILD / "fakecuda"), "FAKECUDA_STATE": f"{tmp_path}/gpus", "FAKECUDA_DEVICES": "2"}
    daemon = Daemon("".join(f"[pool gpu{i}]\nkind=vmm\ndevice={i}\nsize=64M\n" for i in range(2)), **env)
    env = os.environ | env | {"GPUSHM_SOCKET": daemon.socket, "PYTHONUNBUFFERED": "1"}
    source = """
import sys, gpushm
from gpushm.ray import _link
_link.node_address = lambda: "127.0.0.1"
with gpushm.create("o", 4, "uint8", pool="gpu0") as a:
    a.copy_from_host([1, 2, 3, 4])
    a.publish("sealed")
    print(_link.here().ask("keep", "k", "o", str(a.buffer.id)))
sys.stdin.read()
"""

    def run(code: str, gpu: int) -> Any:
        env["CUDA_VISIBLE_DEVICES"] = str(gpu)
        made = subprocess.Popen([sys.executable, "-c", code], env=env, text=True, stdin=-1, stdout=-1)
        programs.append(made)
        return made.stdout.readline()

    programs: list[Any] = []
    try:
        assert run(source, 0).startswith("127.0.0.1 ")
        assert [run(SEES_ONE_GPU, gpu) for gpu in (1, 0, 1)] == [f"gpu{gpu} [1, 2, 3, 4]\n" for gpu in (1, 0, 1)]
        with gpushm.connect(daemon.socket) as c:
            assert sorted(b.pool for b in c.ls()) == ["gpu0", "gpu1"]
    finally:
        for program in programs:
            program.communicate(timeout=60)
        daemon.remove()


# Lines of stdin are calls, whose results are printed.
ON_A_GPU = """
import sys, threading
from types import SimpleNamespace
import gpushm
from gpushm import _driver
from gpushm.ray import _link, _store
_link.node_address = lambda: "127.0.0.1"
link, store, works = _link.here(), _store.store, threading.Event()
works.set()
synchronize_all, _driver.synchronize_all = _driver.synchronize_all, lambda gpu: works.wait() and synchronize_all(gpu)

class Tensor(SimpleNamespace):
    device, nbytes, itemsize, data_ptr, is_contiguous = SimpleNamespace(index=0), 4, 1, int, lambda self: True

def fill(slab, tensors, offsets):
    for tensor, at in zip(tensors, offsets):
        slab.buffer.array((4,), "uint8", offset=at).copy_from_host([tensor.value] * 4)
    return written.wait

_store.Slab.fill = fill
_store._fill = lambda buffer, *args: fill(SimpleNamespace(buffer=buffer), *args)
written = threading.Event()
written.set()

def make(key, value):
    buffer = store.place(link, key, [Tensor(value=value)], False)[0].buffer
    return f"{buffer.name} {buffer.id}"

def read(key, name, id):
    global whole
    whole = store.read(link, key, (name, id), "r", "current")
    return whole.tolist()[0]

def drop():
    global whole
    whole = None

for line in sys.stdin:
    print(eval(line), flush=True)
"""


def test_memory_of_a_gpu_waits_for_its_readers_gpus(tmp_path: Path) -> None:
    env = {"LD_LIBRARY_PATH": str(BUILD / "fakecuda"), "FAKECUDA_STATE": f"{tmp_path}/gpus"}
    daemon = Daemon("[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n", **env)
    env = os.environ | env | {"GPUSHM_SOCKET": daemon.socket}
    words = [sys.executable, "-c", ON_A_GPU]
    source, reader = (subprocess.Popen(words, env=env, text=True, stdin=-1, stdout=-1) for _ in range(2))

    def call(program: Any, line: str) -> str:
        program.stdin.write(f"{line}\n")
        program.stdin.flush()
        return str(program.stdout.readline().strip())

    try:
        name, id = call(source, "make('a', 1)").split()
        assert call(reader, f"read('a', '{name}', {id})") == "1"
        call(reader, "works.clear()")
        call(source, "link.say('end', 'a')")
        until(lambda: call(reader, "'a' in store._read") == "False")
        call(reader, "drop()")
        time.sleep(1)
        other = call(source, "make('b', 2)")
        assert other.split()[0] != name, "the reader's GPU may still read it"
        call(reader, "works.set()")
        until(lambda: call(source, "sum(not s.objects for s in store._slabs)") == "1")
        call(reader, "[opened := _store._opened, setattr(_store, '_opened', None)]")  # it has it mapped
        assert call(source, "make('c', 3)") == f"{name} {id}" and call(reader, f"read('c', '{name}', {id})") == "3"
        call(reader, "setattr(_store, '_opened', opened)")
        call(source, "written.clear()")
        late = call(source, "make('d', 4)").split()
        reader.stdin.write(f"read('d', '{late[0]}', {late[1]})\n")
        reader.stdin.flush()
        assert not select.select([reader.stdout], [], [], 1)[0], "the source's GPU still writes it"
        call(source, "written.set()")
        assert reader.stdout.readline() == "4\n"
        with gpushm.connect(daemon.socket) as c:  # for a relay the holder copies the first one
            assert c.stat(call(reader, "link.ask('seal', 'd')")).state == "sealed" and c.stat(late[0]).state == "shared"
            until(lambda: call(source, "store._is_far") == "True")
            assert c.stat(call(source, "make('e', 5)").split()[0]).state == "sealed"
        for key in "bcde":
            call(source, f"link.say('end', '{key}')")
        call(reader, "drop()")
        until(lambda: call(reader, "len(store._idle)") == "2")
        until(lambda: call(source, "sum(not s.objects for s in store._slabs)") == "3")
        assert call(source, "store.tidy(0)") == "None"
        with gpushm.connect(daemon.socket) as c:
            until(lambda: not c.ls(), 5)  # neither the holder nor the reader keeps it
    finally:
        for program in source, reader:
            program.communicate(timeout=60)
        daemon.remove()


def test_an_object_outlives_its_actor_until_nobody_refers_to_it(nodes: Nodes) -> None:
    source, old = nodes.on(Actor, 0), nodes.on(Actor, 0)
    ref = source.make.remote(3.0)
    ray.get(old.keep.remote(ref))
    kill(source)
    new = nodes.on(Actor, 0)
    assert ray.get([new.total.remote(ref), old.total.remote(ref), old.drop.remote()]) == [3.0 * N] * 3
    far = nodes.on(Actor, 1)
    assert ray.get(far.total.remote(ref)) == 3.0 * N
    del ref
    empty(nodes)


def test_a_copy_that_fails_leaves_nothing(nodes: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr("gpushm.ray._store._fill", fails)
        with pytest.raises(MemoryError):
            ray.put(np.ones(N, "f4"), _tensor_transport="gpushm_numpy")
    empty(nodes)
    assert ray.get(nodes.on(Actor, 0).total.remote(ray.put(np.ones(N, "f4"), _tensor_transport="gpushm_numpy"))) == N
    empty(nodes)


def test_memory_is_used_again_when_its_readers_have_let_go(nodes: Nodes) -> None:
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    ref = source.make.remote(1.0)
    ray.get(reader.keep.remote(ref))
    first = nodes.buffers()
    del ref
    # A reader still has it: the next object is elsewhere.
    ref = source.make.remote(2.0)
    assert ray.get(reader.total.remote(ref)) == 2.0 * N and len(nodes.buffers()) == 2
    assert ray.get(reader.drop.remote()) == 1.0 * N
    del ref
    for value in range(4):
        until(lambda: ray.get(source.is_free.remote()))
        ref = source.make.remote(float(value))
        assert ray.get(reader.total.remote(ref)) == value * N
        del ref
    assert len(nodes.buffers()) <= 2 and first
    empty(nodes)


def test_what_readers_of_a_part_still_see_is_not_written_to(nodes: Nodes) -> None:
    source, middle, reader = (nodes.on(Actor, 0) for _ in range(3))
    ref = source.make.remote(7.0)
    part = middle.forward.remote(ref)
    ray.get(reader.keep.remote(part))
    del ref, part
    until(lambda: ray.get(middle.kept_now.remote()) == 0)
    time.sleep(1)
    for value in range(3):
        assert ray.get(middle.total.remote(source.make.remote(float(value)))) == value * N
    assert ray.get(reader.drop.remote()) == 7.0 * N / 2
    empty(nodes)


def test_what_a_killed_reader_had_open_is_not_written_to(nodes: Nodes) -> None:
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    ref = source.make.remote(1.0)
    assert ray.get(reader.total.remote(ref)) == N
    first = nodes.buffers()
    kill(reader)
    del ref
    until(lambda: not nodes.buffers())
    ref = source.make.remote(2.0)
    assert ray.get(nodes.on(Actor, 0).total.remote(ref)) == 2.0 * N and nodes.buffers() != first
    del ref
    empty(nodes)


def test_memory_that_waits_for_an_object_goes_to_another_process_that_needs_it(nodes: Nodes) -> None:
    n = (300 << 20) // 4
    sources, reader = [nodes.on(Actor, 0) for _ in range(2)], nodes.on(Actor, 0)
    for source in sources:
        assert ray.get(reader.total.remote(source.make.remote(1.0, n))) == n
    empty(nodes)


def test_tensors_that_lie_in_a_buffer_are_not_copied(nodes: Nodes) -> None:
    source, middle, reader = (nodes.on(Actor, 0) for _ in range(3))
    ref = source.make_in_place.remote(2.0)
    assert ray.get(reader.total.remote(ref)) == 2.0 * N and len(nodes.buffers()) == 1
    first = source.make.remote(4.0)
    part = middle.forward.remote(first)
    assert ray.get(reader.total.remote(part)) == 2.0 * N
    assert len(nodes.buffers()) == 2, "the part is in the whole one's buffer"
    del first
    kill(source)
    assert ray.get(reader.total.remote(part)) == 2.0 * N
    del ref, part
    empty(nodes)


def test_a_buffer_that_lost_its_name_is_not_taken_for_another(nodes: Nodes) -> None:
    source, *readers, late = (nodes.on(Actor, i) for i in (0, 0, 1, 0))
    ref = source.make_named.remote(3.0)
    assert ray.get([r.total.remote(ref) for r in readers]) == [3.0 * N] * 2
    ray.get(source.name.remote("test/named", 4.0))
    assert ray.get([r.total.remote(ref) for r in readers]) == [3.0 * N] * 2
    with pytest.raises(ray.exceptions.RayTaskError, match='"test/named" is another one by now'):
        ray.get(late.total.remote(ref))
    assert len(nodes.buffers(0)) == 1 and len(nodes.buffers(1)) == 1, "the relay's copy, and what was pulled"
    del ref
    gpushm.unlink("test/named")
    kill(source)
    empty(nodes)


def test_memory_that_a_reader_keeps_mapped_is_not_taken_for_another_of_its_name(nodes: Nodes) -> None:
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    for value in 1.0, 2.0:
        assert ray.get(reader.total.remote(source.make_named.remote(value, "shared"))) == value * N
        empty(nodes)
    gpushm.unlink("test/named")
    kill(source)


def test_an_object_of_another_node_comes_once_by_its_relay(nodes: Nodes) -> None:
    source, readers = nodes.on(Actor, 0), [nodes.on(Actor, 1) for _ in range(3)]
    ref = source.make.remote(1.5)
    assert ray.get([r.total.remote(ref) for r in readers]) == [1.5 * N] * 3
    assert len(nodes.buffers(1)) == 1
    with gpushm.connect(nodes.daemons[1].socket) as daemon:
        assert daemon.stat(nodes.buffers(1)[0]).attrs["gpushm.etag"]
    assert ray.get([r.total.remote(ref) for r in readers]) == [1.5 * N] * 3
    del ref
    empty(nodes)


def test_the_owner_may_be_on_another_node_than_the_source(nodes: Nodes) -> None:
    source, owner = nodes.on(Actor, 1), nodes.on(Actor, 0)
    assert ray.get(owner.own.remote(source)) == 5.0 * N
    kill(source)
    time.sleep(1)
    assert nodes.buffers(1)
    kill(owner)
    empty(nodes)


def test_an_object_ends_with_its_owner_though_the_source_lives(nodes: Nodes) -> None:
    source, owner = nodes.on(Actor, 0), nodes.on(Actor, 0)
    assert ray.get(owner.own.remote(source)) == 5.0 * N
    kill(owner)
    empty(nodes)
    assert ray.get(source.pid.remote())


@pytest.mark.parametrize("where", ["driver", "actor"])
def test_what_is_put_is_freed_and_borrowers_keep_nothing(nodes: Nodes, where: str) -> None:
    reader, putter = nodes.on(Actor, 0), nodes.on(Actor, 0)
    if where == "driver":
        refs = [ray.put(np.full(N, 6.0, "f4"), _tensor_transport="gpushm_numpy")]
    else:
        refs = ray.get(putter.put.remote(6.0))
    assert ray.get(reader.borrow.remote(refs)) == 6.0 * N
    assert ray.get(reader.total.remote(refs[0])) == 6.0 * N
    assert len(nodes.buffers()) == 1
    ray.get(reader.keep.remote(0))
    ray.kill(reader)
    del refs
    empty(nodes)


def test_results_without_tensors_have_no_buffer(nodes: Nodes) -> None:
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    assert ray.get(reader.pid.remote()) and ray.get(source.nothing.remote()) == "no tensor"
    assert nodes.buffers() == []


def test_the_default_transport_has_torchs_tensors_where_there_is_torch(nodes: Nodes) -> None:
    source, one, two = (nodes.on(Actor, 0) for _ in range(3))
    ref = source.make_default.remote(2.0)
    assert ray.get([one.total.remote(ref), two.total.remote(ref)]) == [2.0 * N] * 2
    try:
        import torch
    except ImportError:
        return
    assert torch and ray.get([one.write.remote(ref), two.write.remote(ref)]) == [3.0, 3.0]
    assert ray.get(one.total.remote(ref)) == 2.0 * N, "what a reader writes nobody else sees"


@pytest.mark.parametrize("at", [4, 5])
def test_torchs_tensors_of_a_buffer_keep_shape_and_type(nodes: Nodes, at: int) -> None:
    """Also at an address where PyTorch can't make a view."""
    pytest.importorskip("torch")
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 0)
    expected: list[Any] = [(4, "torch.float32", 6.0), (16, "torch.bfloat16", 32.0)]
    expected += [("torch.float32", 3.0), (0, "torch.uint8", 0.0)]
    assert ray.get(reader.shapes.remote(source.make_shapes.remote(at))) == expected


def test_a_reader_whose_source_node_has_no_relay_is_told_what_to_start(nodes: Nodes) -> None:
    nodes.relays[0].end(signal.SIGKILL)
    source, reader = nodes.on(Actor, 0), nodes.on(Actor, 1)
    ref = source.make.remote(1.0)
    address = os.environ["GPUSHM_RAY_RELAY"]
    with pytest.raises(Exception, match="start gpushm-relay") as raised:
        ray.get(reader.total.remote(ref))
    assert address in str(raised.value)
    nodes.relay(0, nodes.ports[0])
    assert ray.get(reader.total.remote(ref)) == N
