# SPDX-License-Identifier: MIT
"""The examples of client/examples/models, as a reader would run them."""

from __future__ import annotations

import ctypes
import multiprocessing as mp
import os
import re
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

import gpushm
import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "client/examples/models"
# What they print where all is well, in order.
SAID = {
    "prefork.py": ["workers answered", "share 16 MiB"],
    "swap.py": ["version 2: 500 answers", "version 4: 500 answers"],
    "asgi.py": ["status 200: ["],
    "dataloader.py": ["4 workers made 64 items with one model of 16 MiB"],
    "generate.py": ["processes share", "making the module and attaching took"],
    "follow.py": ["generation 1: 4 followers", "generation 5: 4 followers"],
}
_PR_SET_CHILD_SUBREAPER = 36  # sys/prctl.h
_prctl = ctypes.CDLL(None).prctl


def children() -> dict[int, str]:
    """Children of this process, and their commands; "" is one that has ended and that nobody has waited for."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
            if int(parent) == os.getpid():
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
    return found


class Program:
    """A program. Processes that it leaves become children of this one. Its output goes to a file, which such a process
    does not keep open as it would a pipe.
    """

    def __init__(self, words: list[str], folder: Path) -> None:
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)
        self.before = children()
        self.output = folder / "output"
        with self.output.open("w") as output:
            self.process = subprocess.Popen(words, stdout=output, stderr=output, cwd=EXAMPLES)

    def orphans(self) -> list[str]:
        """The commands of the processes that it has not waited for."""
        return [command for pid, command in children().items() if pid not in self.before]

    def said(self) -> str:
        return self.output.read_text()

    def end(self) -> None:
        """Ends it and its processes."""
        self.process.kill()
        self.process.wait()
        _prctl(_PR_SET_CHILD_SUBREAPER, 0)
        for pid in children().keys() - self.before.keys():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def wait_for_no_buffer() -> None:
    """The daemon learns of the end of a process a moment after its parent."""
    end = time.monotonic() + 60
    while gpushm.ls() and time.monotonic() < end:
        time.sleep(0.01)
    assert gpushm.ls() == []


def test_every_example_is_run() -> None:
    assert sorted(SAID) == sorted(p.name for p in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize("example", SAID)
def test_an_example_works_and_leaves_nothing(example: str, tmp_path: Path) -> None:
    text = (EXAMPLES / example).read_text()
    program = Program([sys.executable, example], tmp_path)
    try:
        status = program.process.wait(400)
        orphans = program.orphans()
        said = program.said()
    finally:
        program.end()
    assert status == 0, said
    # Of processes that are spawned, Python leaves one of its own.
    assert len(orphans) <= ('"spawn"' in text), orphans
    at = -1
    for line in SAID[example]:
        at = said.find(line, at + 1)
        assert at >= 0, (line, said)
    wait_for_no_buffer()
    assert len(text.splitlines()) <= 60
    print(said)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Program]:
    """A program as its page says it, with two workers and a socket."""
    example, module, options = request.param
    pytest.importorskip(module)
    if "--preload" in options and pytest.importorskip("torch").cuda.is_available():
        pytest.skip("CUDA does not survive a fork")
    line = rf"^    {module} --workers \d {re.escape(options)}'?(\w[^ ']*)'? "
    (words,) = re.findall(line, (EXAMPLES / example).read_text(), re.MULTILINE)
    bind = ["--timeout", "200", "--bind", "unix:"]
    if module == "uvicorn":  # else it kills a worker whose imports take 5 s on a busy machine
        bind = ["--timeout-worker-healthcheck", "200", "--uds", ""]
    bind[-1] += str(tmp_path / "s")
    command = [sys.executable, "-B", "-m", module, *bind, "--workers", "2", *options.split()]
    program = Program([*command, words], tmp_path)
    yield program
    program.end()
    gpushm.unlink(example.removesuffix(".py"))
    wait_for_no_buffer()


def is_listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asked:
        return asked.connect_ex(str(path)) == 0


def ask(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(200)
        asked.connect(str(path))
        asked.sendall(b"GET /?1 HTTP/1.0\r\n\r\n")
        return asked.makefile().read()


SERVERS = [
    ("prefork.py", "gunicorn", ""),
    ("prefork.py", "gunicorn", "--preload "),
    ("asgi.py", "uvicorn", "--factory "),
]


@pytest.mark.parametrize("server", SERVERS, indirect=True, ids=["gunicorn", "gunicorn --preload", "uvicorn"])
def test_an_example_answers_under_a_server(server: Program, tmp_path: Path) -> None:
    end = time.monotonic() + 200
    while not is_listening(tmp_path / "s"):
        assert server.process.poll() is None and time.monotonic() < end, server.said()
        time.sleep(0.05)
    answers = [ask(tmp_path / "s") for _ in range(8)]
    assert all(" 200 OK" in answer for answer in answers), server.said()
    assert len({answer.rpartition(",")[2] for answer in answers}) == 1, answers
    (model,) = gpushm.ls()
    assert model.nbytes < 17 << 20


# ---- Triton ----

# What Triton gives to a model: a stand-in for its module, which exists in its processes only.
BACKEND_UTILS = """
import collections
class Tensor(collections.namedtuple("Tensor", "name array")):
    def as_numpy(self): return self.array
InferenceResponse = collections.namedtuple("InferenceResponse", "output_tensors")
def get_input_tensor_by_name(request, name): return next(t for t in request if t.name == name)
"""


def instance(pipe: Connection, folder: str) -> None:
    """What Triton's stub does for an instance: initialize(), then execute() of lists of requests."""
    sys.path.insert(0, folder)
    import triton_python_backend_utils as pb_utils

    model = runpy.run_path(str(EXAMPLES / "triton/1/model.py"))["TritonPythonModel"]()
    model.initialize({"model_name": "small", "model_version": "1", "model_instance_kind": "CPU", "model_config": "{}"})
    for arrays in iter(pipe.recv, None):
        responses = model.execute([[pb_utils.Tensor("X", array)] for array in arrays])
        pipe.send([response.output_tensors[0].as_numpy().tolist() for response in responses])


def test_four_instances_of_triton_answer_with_one_copy(tmp_path: Path) -> None:
    """The class is called as Triton's stub calls it; Triton itself is not here."""
    import numpy as np

    (tmp_path / "triton_python_backend_utils.py").write_text(BACKEND_UTILS)
    (count,) = re.findall(r"instance_group \[{ count: (\d)", (EXAMPLES / "triton/config.pbtxt").read_text())
    pipes, processes = [], []
    for _ in range(int(count)):
        ours, theirs = mp.Pipe()
        processes.append(mp.get_context("spawn").Process(target=instance, args=(theirs, str(tmp_path))))
        processes[-1].start()
        theirs.close()
        pipes.append(ours)
    for pipe in pipes:
        pipe.send([np.eye(8, 256, dtype=np.float32), np.ones((1, 256), np.float32)])
    answers = [pipe.recv() for pipe in pipes]
    assert len(answers) == 4 and answers == [answers[0]] * 4 and len(answers[0][0]) == 8
    assert [(b.name, b.readers) for b in gpushm.ls()] == [("triton/small/1", 4)]
    for pipe, process in zip(pipes, processes, strict=True):
        pipe.send(None)
        process.join()
    gpushm.unlink("triton/small/1")
    wait_for_no_buffer()
