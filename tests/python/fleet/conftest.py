# SPDX-License-Identifier: MIT
"""Two machines, as far as engines can tell: a daemon each, and processes that find one of the two by $GPUSHM_SOCKET."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1]))

import ran

from daemon import BUILD, Daemon

ROOT = Path(__file__).resolve().parents[3]
EXAMPLES = ROOT / "client/python/examples"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints counts as Check does, and what ran, for tests/run.sh."""
    for line in ran.lines():
        terminalreporter.line(line)
    found = {kind: len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "error", "skipped")}
    n = sum(found.values())
    share = 100 * (found["passed"] + found["skipped"]) // max(n, 1)
    terminalreporter.line(f"{share}%: Checks: {n}, Failures: {found['failed']}, Errors: {found['error']}")


class Program:
    """A process with a group of its own, whose output goes to a file; it ends with the test, and its children do."""

    def __init__(self, words: list[str], log: Path, **env: str) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(
                words,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | env,
                start_new_session=True,
            )

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends it, and what has stayed of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, how)
        # "ray start" takes half a minute to end.
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(2)
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def ctl(daemon: Daemon, *words: str) -> str:
    """What gpushmctl prints of this machine's daemon."""
    done = subprocess.run(
        [BUILD / "gpushmctl", *words],
        capture_output=True,
        text=True,
        env=os.environ | {"GPUSHM_SOCKET": daemon.socket},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture
def machines() -> Iterator[list[Daemon]]:
    """Two, without the model."""
    started = [Daemon("[pool host]\nkind=host\nsize=64M\n") for _ in range(2)]
    yield started
    for daemon in started:
        daemon.remove()
