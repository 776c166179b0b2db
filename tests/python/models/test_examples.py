# SPDX-License-Identifier: MIT
"""The examples of client/examples/models, as a reader would run them."""

from __future__ import annotations

import ctypes
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import gpushm
import pytest

EXAMPLES = Path(__file__).resolve().parents[3] / "client/examples/models"
# What they print where all is well, in order.
SAID = {
    "prefork.py": ["workers answered", "share 16 MiB"],
    "swap.py": ["version 2: 500 answers", "version 4: 500 answers"],
    "backend.py": ["2 instances give the answer"],
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
def gunicorn(tmp_path: Path) -> Iterator[Program]:
    """As prefork.py says it, with two workers and a socket."""
    pytest.importorskip("gunicorn")
    made = Program([sys.executable, "-B", "-c", "import prefork; prefork.publish()"], tmp_path)
    assert made.process.wait(200) == 0, made.said()
    words = re.findall(r"^    gunicorn --workers 8 '(.*)' ", (EXAMPLES / "prefork.py").read_text(), re.MULTILINE)
    path = tmp_path / "s"
    command = [sys.executable, "-B", "-m", "gunicorn", "--timeout", "200", "--workers", "2", "--bind", f"unix:{path}"]
    program = Program([*command, *words], tmp_path)
    yield program
    program.end()
    gpushm.unlink("prefork")
    wait_for_no_buffer()


def ask(path: Path) -> str:
    with socket.socket(socket.AF_UNIX) as asked:
        asked.settimeout(200)
        asked.connect(str(path))
        asked.sendall(b"GET /?1 HTTP/1.0\r\n\r\n")
        return asked.makefile().read()


def test_prefork_answers_under_gunicorn(gunicorn: Program, tmp_path: Path) -> None:
    end = time.monotonic() + 200
    while not (tmp_path / "s").exists():
        assert gunicorn.process.poll() is None and time.monotonic() < end, gunicorn.said()
        time.sleep(0.05)
    answers = [ask(tmp_path / "s") for _ in range(4)]
    assert all(" 200 OK" in answer for answer in answers), gunicorn.said()
    assert len({answer.rpartition(",")[2] for answer in answers}) == 1, answers
