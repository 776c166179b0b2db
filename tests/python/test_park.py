# SPDX-License-Identifier: MIT
"""Processes that are parked: what it takes, what is refused, and who is told. Needs the fake driver."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import gpushm
import pytest

from daemon import BUILD, Daemon

pytestmark = pytest.mark.skipif(
    "fakecuda" not in os.environ.get("LD_LIBRARY_PATH", ""), reason="processes are frozen over the fake driver alone"
)

# It answers with the first byte of its model, which it resumes for that, and suspends when it is asked to.
WORKER = """
import select, sys, gpushm
how = sys.argv[1]
if how != "silent":
    gpushm.may_park(None if how != "declared" else "NCCL has imported its peers' memory")
c = gpushm.connect()
poll = select.poll()
poll.register(0, select.POLLIN)
poll.register(c._wanted_fd(), select.POLLIN)
model = c.open("stream" if how == "stream" else "model", timeout=60) if how != "stream" else None
if how == "stream":
    reader = gpushm.follow("stream")
if how == "mempool":
    c.open("pooled", timeout=60).close()
print("ready", flush=True)
while True:
    poll.poll(100)
    c._wanted_fd()
    if model is not None and model.buffer.wanted and how not in ("deaf", "back") and not model.buffer.away:
        model.buffer.suspend()
        how = "back" if how == "stubborn" else how  # it suspends once
    if select.select([0], [], [], 0)[0]:
        if not sys.stdin.readline():
            break
        out = bytearray(4)
        if model.buffer.away:
            model.buffer.resume(60)
        model[:4].copy_to_host(out)
        print(out[0], flush=True)
"""

CONFIG = "[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n[pool mem]\nkind=mempool\ndevice=0\nsize=64M\n"


class World:
    """A daemon whose driver other processes share, and a model."""

    def __init__(self, folder: Path, *, keeper: bool = False, **env: str) -> None:
        self.env = {"FAKECUDA_STATE": f"{folder}/gpus"} | env
        os.environ.update(self.env)
        os.environ["GPUSHMCTL"] = str(BUILD / "gpushmctl")
        self.daemon = Daemon(CONFIG, keeper=keeper, FAKECUDA_STATE=self.env["FAKECUDA_STATE"])
        self.socket = self.daemon.socket
        self.c = gpushm.connect(self.socket)
        array = self.c.create("model", 1 << 20, pool="gpu")
        array.copy_from_host(bytes([7]) * (1 << 20))
        array.publish("sealed")
        array.close()
        self.workers: list[subprocess.Popen[str]] = []

    def start(self, how: str) -> subprocess.Popen[str]:
        w = subprocess.Popen(
            [sys.executable, "-c", WORKER, how], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env=os.environ | {"GPUSHM_SOCKET": self.socket},
        )
        self.workers.append(w)
        assert w.stdout is not None
        assert w.stdout.readline() == "ready\n"
        return w

    def ctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [BUILD / "gpushmctl", "--socket", self.socket, *words], capture_output=True, text=True, check=False
        )

    def holders(self) -> list[gpushm.types.Holder]:
        return list(self.c.stat("model", holders=True).holders)

    def end(self) -> None:
        for w in self.workers:
            w.kill()
            w.communicate()
        self.c.close()
        self.daemon.remove()
        for name in (*self.env, "GPUSHMCTL"):
            os.environ.pop(name, None)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    w = World(tmp_path)
    yield w
    w.end()


def ask(w: subprocess.Popen[str]) -> None:
    assert w.stdin is not None
    w.stdin.write("\n")
    w.stdin.flush()


def answer(w: subprocess.Popen[str]) -> str:
    ask(w)
    assert w.stdout is not None
    return w.stdout.readline()


def until(condition: object) -> None:
    end = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_parked_process_waits_in_the_driver_and_answers_when_it_is_back(world: World) -> None:
    w = world.start("well")
    assert answer(w) == "7\n"
    world.c.park(w.pid)
    (holder,) = world.holders()
    assert holder.parked
    assert holder.away
    assert "parked" in world.ctl("ls", "--holders").stdout
    assert json.loads(world.ctl("--json=short", "stat", "model").stdout)["holders"][0]["parked"]
    assert "gpushm_processes_parked 1\n" in world.ctl("metrics").stdout
    world.c.park(w.pid)  # stays so
    ask(w)
    time.sleep(0.2)  # it can't have answered however long this is
    assert world.holders()[0].parked
    world.c.unpark(w.pid)
    assert w.stdout is not None
    assert w.stdout.readline() == "7\n"
    assert not world.holders()[0].parked
    world.c.unpark(w.pid)
    assert answer(w) == "7\n"
    told = [e["event"] for e in map(json.loads, world.ctl("--json=short", "events", "--once").stdout.splitlines())]
    assert [t for t in told if "park" in t] == ["parked", "unparked"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("silent", "has not promised, by gpushm_may_park()"),
        ("declared", "NCCL has imported its peers' memory"),
        ("deaf", 'has not suspended all: 1 still, buffer "model" among them'),
        ("stream", "is a stream"),
        ("mempool", "mempool"),
    ],
)
def test_what_may_not_be_parked_is_refused_and_goes_on(tmp_path: Path, how: str, why: str) -> None:
    """The driver is not even asked: it would hang in its first call."""
    world = World(tmp_path, FAKECUDA_HANG="1:cuCheckpointProcessLock", FAKECUDA_HANG_UNTIL=f"{tmp_path}/never")
    try:
        if how == "stream":
            stream = world.c.stream("stream", {"x": (64, "uint8")}, slots=2, pool="gpu")
        if how == "mempool":
            pooled = world.c.create("pooled", 64, pool="mem")
            pooled.publish("sealed")
        w = world.start(how)
        done = world.ctl("park", "-t", "1", str(w.pid))
        assert done.returncode == 1
        assert why in done.stderr
        if how == "stream":
            stream.close()
        else:
            assert answer(w) == "7\n"
            assert not world.holders()[0].parked
        if how == "mempool":
            pooled.close()
    finally:
        world.end()


def test_a_process_that_is_no_client_is_not_found(world: World) -> None:
    done = world.ctl("park", str(os.getpid() if os.getpid() == 1 else 1))
    assert done.returncode == 3
    assert "is connected to gpushmd" in done.stderr


def test_all_holders_of_a_name_are_parked(world: World) -> None:
    workers = [world.start("well") for _ in range(2)]
    assert world.ctl("park", "model").returncode == 0
    assert all(h.parked for h in world.holders())
    assert world.ctl("unpark", "model").returncode == 0
    assert [answer(w) for w in workers] == ["7\n", "7\n"]


def test_a_parked_process_that_is_killed_ends_like_any(world: World) -> None:
    w = world.start("well")
    world.c.park(w.pid)
    w.kill()
    until(lambda: not world.holders())
    assert "gpushm_processes_parked 0\n" in world.ctl("metrics").stdout


@pytest.mark.parametrize("how", ["restart", "kill"])
def test_a_daemon_that_takes_over_knows_who_is_parked(tmp_path: Path, how: str) -> None:
    """Also over its death: the keeper keeps what the daemon leaves."""
    w = World(tmp_path, keeper=how == "kill")
    try:
        worker = w.start("well")
        w.c.park(worker.pid)
        if how == "restart":
            w.ctl("restart")
        else:
            os.kill(w.c.status().pid, signal.SIGKILL)
        until(lambda: w.ctl("status").returncode == 0)
        assert w.holders()[0].parked
        ask(worker)
        time.sleep(0.2)
        w.c.unpark(worker.pid)
        assert worker.stdout is not None
        assert worker.stdout.readline() == "7\n"
        until(lambda: w.ctl("park", str(worker.pid)).returncode == 0)  # it has promised it again
        w.c.unpark(worker.pid)
        assert answer(worker) == "7\n"
    finally:
        w.end()


@pytest.mark.skipif(os.getuid() != 0, reason="root alone can be somebody else")
def test_a_process_is_parked_by_its_own_user_alone(tmp_path: Path) -> None:
    world = World(tmp_path)
    try:
        worker = world.start("well")
        world.daemon.folder.chmod(0o711)
        code = f"""
import gpushm, os
os.setuid(1001)
c = gpushm.connect()
for call in c.park, c.unpark:
    try:
        call({worker.pid})
    except gpushm.errors.NotFound as e:
        print(e)
"""
        # The helper is not asked for anything; that of the build folder may be one that this user can't read.
        env = os.environ | {"GPUSHM_SOCKET": world.socket, "GPUSHMCTL": "/bin/true"}
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
        assert done.stdout.count(f"uid 1001 has no process {worker.pid} ") == 2, done.stderr
        assert not world.holders()[0].parked
        assert answer(worker) == "7\n"
    finally:
        world.end()


def test_a_freeze_that_does_not_return_is_reported_and_kills_when_asked(tmp_path: Path) -> None:
    world = World(tmp_path, FAKECUDA_HANG="1:cuCheckpointProcessCheckpoint", FAKECUDA_HANG_UNTIL=f"{tmp_path}/never")
    try:
        w = world.start("well")
        done = world.ctl("park", "-t", "2", str(w.pid))
        assert done.returncode == 5
        assert "does not come back" in done.stderr
        assert w.poll() is None
        assert not world.holders()[0].parked
        assert '"stuck"' in world.ctl("--json=short", "events", "--once").stdout
        done = world.ctl("unpark", "-t", "2", str(w.pid))  # it was locked
        assert done.returncode == 0
        assert answer(w) == "7\n"
        assert world.ctl("park", "-t", "2", "--kill-stuck", str(w.pid)).returncode == 5
        assert w.wait(60) == -9
    finally:
        world.end()


def test_a_process_that_comes_back_meanwhile_is_not_frozen(tmp_path: Path) -> None:
    world = World(tmp_path, FAKECUDA_HANG="1:cuCheckpointProcessLock", FAKECUDA_HANG_UNTIL=f"{tmp_path}/go")
    try:
        w = world.start("stubborn")
        park = subprocess.Popen(
            [BUILD / "gpushmctl", "--socket", world.socket, "park", str(w.pid)], stderr=subprocess.PIPE, text=True
        )
        until(lambda: all(h.away for h in world.holders()))
        assert answer(w) == "7\n"
        (tmp_path / "go").touch()
        assert "has not suspended all" in park.communicate()[1]
        assert park.returncode == 1
        assert answer(w) == "7\n"
    finally:
        world.end()
