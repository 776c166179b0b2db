# SPDX-License-Identifier: MIT
"""gpushm.torch.share(): of equal workers one builds the module, the others attach."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import gpushm
import gpushm.torch
import pytest
import torch

Raises = Callable[..., str]

WORKER = """
import os, sys, time, gpushm, gpushm.torch, torch
def build():
    torch.manual_seed(0)
    made = torch.nn.Sequential(*[torch.nn.Linear(64, 64) for _ in range(4)]).to("cpu", torch.bfloat16).eval()
    if not made[0].weight.is_meta:
        print("built", os.getpid(), flush=True)
        time.sleep(float(sys.argv[1]))
    return made
model = gpushm.torch.share("model", build)
print("answer", model(torch.ones(1, 64, dtype=torch.bfloat16)).sum().item(), flush=True)
"""


def worker(seconds: float = 0.3, before: str = "", **env: str) -> subprocess.Popen[str]:
    """A process that shares a module, which it builds in so many seconds if it must. before: what it does first."""
    path = os.pathsep.join([os.environ["BUILD"], os.environ["PATH"]])
    return subprocess.Popen(
        [sys.executable, "-c", before + WORKER, str(seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"PATH": path} | env,
    )


def answers(workers: list[subprocess.Popen[str]]) -> tuple[int, set[str], str]:
    """How many have built, what they have answered, and what they have said on stderr."""
    said = [w.communicate(timeout=300) for w in workers]
    assert all(w.returncode == 0 for w in workers), said
    out = "".join(s[0] for s in said)
    return out.count("built"), set(re.findall("answer (.*)", out)), "".join(s[1] for s in said)


def build(seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).eval()


def test_one_of_equal_workers_builds_and_all_answer_the_same(name: str) -> None:
    assert answers([worker() for _ in range(4)])[0::2] == (1, "")
    built, found, _ = answers([worker()])
    assert built == 0 and len(found) == 1
    assert [buffer.name for buffer in gpushm.ls()] == [name]


def test_who_dies_while_it_builds_is_replaced(name: str) -> None:
    first = worker(1000)
    assert first.stdout is not None and "built" in first.stdout.readline()
    second = worker(0)
    first.kill()
    first.communicate()
    assert answers([second])[:1] == (1,)


def test_a_wait_for_who_builds_ends(raises: Raises) -> None:
    with gpushm.create("model.loading", 1, pool="host") as a:
        share = gpushm.torch.share
        assert "still loads" in raises(gpushm.errors.Timeout, share, "model", build, timeout=0.2)
        a.discard()


def test_an_error_of_build_is_the_caller_s_and_leaves_nothing(raises: Raises) -> None:
    assert "no file" in raises(OSError, gpushm.torch.share, "model", lambda: (_ for _ in ()).throw(OSError("no file")))
    assert gpushm.ls() == []


def test_the_process_that_builds_has_no_copy_of_its_own(name: str) -> None:
    made = gpushm.torch.share(name, build)
    assert gpushm.stat(name).readers == 1
    assert not any(p.requires_grad for p in made.parameters())
    again = gpushm.torch.share(name, build, writable="0.*")
    assert torch.equal(made[0].weight, again[0].weight)
    again[0].weight.zero_()
    assert gpushm.stat(name).readers == 2 and made[0].weight.any()


def test_the_process_that_builds_keeps_no_gpu_memory_from_others(gpu: str, name: str) -> None:
    reserved = torch.cuda.memory_reserved()
    made = gpushm.torch.share(name, lambda: torch.nn.Linear(8192, 8192, device=gpu).eval())
    assert made.weight.is_cuda and torch.cuda.memory_reserved() <= reserved


def test_another_fingerprint_is_refused_or_replaced(name: str, raises: Raises) -> None:
    old = gpushm.torch.share(name, build, fingerprint={"weights": "1"})
    share = gpushm.torch.share
    assert 'weights is "2" here' in raises(gpushm.errors.LayoutError, share, name, build, fingerprint={"weights": "2"})
    new = share(name, lambda: build(1), fingerprint={"weights": "2"}, replace=True)
    first = gpushm.stat(name).id
    same = share(name, lambda: build(2), fingerprint={"weights": "2"}, replace=True)
    assert gpushm.stat(name).id == first
    assert torch.equal(new[0].weight, same[0].weight) and not torch.equal(old[0].weight, new[0].weight)


def test_a_transient_module_ends_with_its_last_user() -> None:
    made = gpushm.torch.share("model", build, transient=True)
    assert gpushm.torch.share("model", build)(torch.ones(1, 8)).equal(made(torch.ones(1, 8)))
    del made
    end = time.monotonic() + 60
    while gpushm.ls() and time.monotonic() < end:
        time.sleep(0.001)
    assert gpushm.ls() == []


def test_a_build_that_needs_values_is_called_as_usual_and_said(name: str) -> None:
    def needs_values() -> torch.nn.Module:
        made = build()
        made.scale = float(made[0].weight[0, 0].item())
        return made

    first = gpushm.torch.share(name, needs_values)
    with pytest.warns(RuntimeWarning, match=r"does not work under torch\.device.*meta"):
        second = gpushm.torch.share(name, needs_values)
    assert first.scale == second.scale and gpushm.stat(name).readers == 2


@pytest.fixture
def nobody(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a user without a daemon and without a session."""
    env = {"GPUSHM_SOCKET": str(tmp_path / "s"), "XDG_RUNTIME_DIR": "", "NOTIFY_SOCKET": "/nowhere"}
    yield env
    with suppress(gpushm.errors.DaemonGone):
        keeper = int(Path(f"/proc/{gpushm.connect(env['GPUSHM_SOCKET']).status().pid}/stat").read_text().split()[3])
        os.kill(keeper, signal.SIGTERM)
        while Path(f"/proc/{keeper}").exists():
            time.sleep(0.01)


def test_workers_without_a_daemon_start_one(nobody: dict[str, str]) -> None:
    built, found, said = answers([worker(**nobody) for _ in range(3)])
    assert (built, len(found)) == (1, 1)
    assert said.count("started gpushmd") == 1 and len(said.splitlines()) == 1
    pid = re.findall(r"kill (\d+) ends it", said)[0]
    assert Path(f"/proc/{pid}/comm").read_text() == "gpushmd-keeper\n"
    assert Path(f"/proc/{pid}/stat").read_text().split()[3] != str(os.getpid())
    # It outlives them, and a daemon that is killed has what was published.
    os.kill(gpushm.connect(nobody["GPUSHM_SOCKET"]).status().pid, signal.SIGKILL)
    assert answers([worker(**nobody)]) == (0, found, "")


def test_paths_are_of_the_folder_where_the_program_works(nobody: dict[str, str]) -> None:
    """Not of the daemon's, which is another one."""
    path = os.path.relpath(os.environ["BUILD"]) + os.pathsep + os.environ["PATH"]
    socket = os.path.relpath(nobody["GPUSHM_SOCKET"])
    before = "import sysconfig; sysconfig.get_path = lambda name: ''\n"
    assert answers([worker(before=before, **nobody | {"PATH": path, "GPUSHM_SOCKET": socket})])[0] == 1
    assert gpushm.connect(nobody["GPUSHM_SOCKET"]).status().pid


# The first process of a container: it gets the processes that others leave, and waits for none of them.
FIRST = "import ctypes; ctypes.CDLL(None).prctl(36, 1)"


def lost(before: str = "", **env: str) -> str:
    """What a worker says that gets no daemon."""
    failed = worker(before=before, **env)
    said = failed.communicate(timeout=300)[1]
    assert failed.returncode == 1 and "DaemonGone: " in said, said
    return said.splitlines()[-1]


@pytest.mark.parametrize("before", ["", FIRST], ids=["", "in a container"])
def test_a_daemon_that_can_t_start_says_why(before: str, tmp_path: Path) -> None:
    said = lost(before, GPUSHM_SOCKET=str(tmp_path / "none" / "none" / "s"))
    assert "gpushmd, which was started, ended: " in said and "its folder can't be made" in said


def test_what_another_daemon_said_is_no_reason(tmp_path: Path) -> None:
    lost(GPUSHM_SOCKET=str(tmp_path / "none" / "none" / "s"))
    (tmp_path / "gpushmd").write_text("#!/bin/sh\n")
    (tmp_path / "gpushmd").chmod(0o755)
    program = f"import shutil; shutil.which = lambda *_, **__: {str(tmp_path / 'gpushmd')!r}"
    assert "ended: it said nothing" in lost(program, GPUSHM_SOCKET=str(tmp_path / "s"))


def test_a_log_that_can_t_be_opened_is_named(tmp_path: Path) -> None:
    refused = "import os; os.geteuid = lambda: 'none/none'"
    said = lost(refused, GPUSHM_SOCKET=str(tmp_path / "s"))
    assert "/tmp/gpushmd-none/none.log, the log of one that would be started, can't be opened: No such file" in said
