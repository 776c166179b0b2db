# SPDX-License-Identifier: MIT
"""`python -m gpushm.share -- COMMAND`: what the command and its children get, and what is said."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import gpushm
import pytest
import torch

from daemon import Daemon

SHARE = [sys.executable, "-m", "gpushm.share"]


def run(words: list[str], status: int = 0, **env: str) -> tuple[str, str]:
    path = os.pathsep.join([os.environ["BUILD"], os.environ["PATH"]])
    before = gpushm.status().leases
    done = subprocess.run(words, capture_output=True, text=True, timeout=300, env=os.environ | {"PATH": path} | env)
    assert done.returncode == status, done.stdout + done.stderr
    end = time.monotonic() + 60
    while gpushm.status().leases > before and time.monotonic() < end:  # of processes that have just ended
        time.sleep(0.001)
    return done.stdout, done.stderr


def python(code: str, *words: str, **env: str) -> tuple[str, str]:
    """What a program prints, and what it says on stderr, under the command with these options."""
    return run([*SHARE, *words, "--", sys.executable, "-c", code], **env)


@pytest.fixture
def weights(tmp_path: Path) -> Path:
    """A file of a layer."""
    torch.manual_seed(0)
    torch.save(torch.nn.Linear(64, 64).state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


LOAD = """
import sys, torch, warnings
def load(path):
    made = torch.nn.Linear(64, 64)
    made.load_state_dict(torch.load(path, mmap=True))
    return made
"""


def test_the_hook_imports_no_library_and_keeps_what_python_imports_at_its_start(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys; sys.own = True")
    code = "import sys; print(sys.own, sorted(m for m in sys.modules if 'gpushm' in m or 'torch' in m or 'numpy' in m))"
    both = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert python(code, PYTHONPATH=both)[0] == "True []\n"
    said = run([*SHARE, "--", "sh", "-c", f"{sys.executable} -c 'import json, sitecustomize; print(json.dumps(1))'"])
    assert said == ("1\n", "")
    # By its name the machine's own sitecustomize is found, if there is one.
    assert python("import sys; print(sys.meta_path[0].__module__, sys.meta_path[0].__name__)")[0].endswith("_Finder\n")


def test_children_of_the_command_share(weights: Path) -> None:
    code = LOAD + f"made = load({str(weights)!r}); import gpushm; print([b.readers for b in gpushm.ls()])"
    assert python(f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}])")[0] == "[1]\n"
    assert gpushm.ls() == []


def test_a_prefix_a_pool_and_buffers_that_stay(weights: Path) -> None:
    python(LOAD + f"load({str(weights)!r})", "--name", "mine/", "--pool", "host", GPUSHM_SAFETENSORS_KEEP="1")
    (left,) = gpushm.ls()
    assert re.fullmatch(r"mine/Linear-[0-9a-f]{16}", left.name) and left.pool == "host"
    gpushm.unlink(left.name)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pool", "gpu", "--", "true"], "--pool: 'gpu' is no host pool; there are: host"),
        (["--name", "/mine", "--", "true"], '--name: name "/mine/name": it has an empty component'),
        (["--"], "usage: python -m gpushm.share [-h] [--name PREFIX] [--pool POOL] -- COMMAND..."),
    ],
)
def test_options_that_are_wrong_are_named_before_the_program_starts(words: list[str], said: str) -> None:
    assert said in run([*SHARE, *words], 2)[1]


def test_the_command_keeps_its_words_and_its_status_and_a_lost_one_is_named() -> None:
    run([*SHARE, "--", "sh", "-c", "exit 7"], 7)
    words = [sys.executable, "-c", "import sys; print(sys.argv)", "--", "--name", "x"]
    assert run([*SHARE, "--name", "mine", *words])[0] == "['-c', '--', '--name', 'x']\n"
    assert "gpushm.share: nothing-like-it: No such file" in run([*SHARE, "nothing-like-it"], 1)[1]


def test_a_process_may_write_to_its_weights(weights: Path) -> None:
    code = LOAD + f"""
import gpushm
first, second = load({str(weights)!r}), load({str(weights)!r})
assert first.weight.requires_grad and gpushm.ls()[0].readers == 2
torch.optim.SGD(first.parameters(), 1).zero_grad()
first(torch.ones(1, 64)).sum().backward()
with torch.no_grad():
    first.weight -= first.weight.grad
print(torch.equal(first.weight, second.weight))
"""
    assert python(code) == ("False\n", "")


def test_what_is_not_shared_is_said_once_with_its_name(weights: Path) -> None:
    code = LOAD + f"""
class Own(torch.nn.Parameter): pass
for _ in range(2):
    made = torch.nn.Linear(64, 64)
    made.weight = Own(made.weight.detach())
    made.load_state_dict(torch.load({str(weights)!r}, mmap=True))
"""
    said = python(code)[1]
    assert said.count("FallbackWarning") == 1, said
    assert "'weight' of Linear is not shared with other processes: it is a Own" in said


def test_weights_that_differ_are_not_shared(weights: Path) -> None:
    """The name has some of the bytes only."""
    code = LOAD + f"""
import gpushm
first = load({str(weights)!r})
state = torch.load({str(weights)!r}, mmap=True)
state["weight"].view(-1)[7] += 1
second = torch.nn.Linear(64, 64)
second.load_state_dict(state)
print(len(gpushm.ls()), torch.equal(first.weight, second.weight), torch.equal(second.weight, state["weight"]))
"""
    said = python(code)
    assert said[0] == "1 False True\n" and "'weight' of Linear is not shared" in said[1]


def test_weights_that_others_may_change_are_not_used(weights: Path) -> None:
    code = LOAD + f"print(load({str(weights)!r}).weight.shape)"
    python(code, GPUSHM_SAFETENSORS_KEEP="1")
    (left,) = gpushm.ls()
    gpushm.unlink(left.name)
    arrays = {name: tensor.numpy() for name, tensor in torch.load(weights).items()}
    with gpushm.create_many(left.name, arrays) as buffer:
        buffer.publish("shared")
    out, said = python(code)
    gpushm.unlink(left.name)
    assert out == "torch.Size([64, 64])\n" and "is shared, and of uid" in said and "could change it" in said


def test_without_memory_a_program_runs_as_usual(weights: Path) -> None:
    """A pool that is too small is a reason, and no error."""
    small = Daemon("[pool host]\nkind = host\nsize = 4 KiB\n")
    try:
        said = python(LOAD + f"print(load({str(weights)!r}).weight.shape)", GPUSHM_SOCKET=small.socket)
    finally:
        small.remove()
    assert said[0] == "torch.Size([64, 64])\n" and "'weight' of Linear is not shared" in said[1], said
