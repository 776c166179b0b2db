# SPDX-License-Identifier: MIT
"""A real gpushmd for tests: started, stopped, killed. Nothing sleeps: the daemon sends a message when it is ready."""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from pathlib import Path

BUILD = Path(os.environ.get("BUILD", "build")).resolve()
_PR_SET_PDEATHSIG = 1  # sys/prctl.h
_prctl = ctypes.CDLL(None).prctl


def _die_with_parent() -> None:
    """Ends the daemon when the tests are killed."""
    _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Daemon:
    """A daemon with a folder, a configuration and a socket of its own."""

    def __init__(self, config: str = "", *, keeper: bool = False, **env: str) -> None:
        self.env = env
        self.options = [] if keeper else ["--no-keeper"]
        self.folder = Path(tempfile.mkdtemp(prefix="gpushm-py-"))
        self.socket = str(self.folder / "s")
        (self.folder / "conf").write_text(config)
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Returns when the daemon says that it is ready."""
        notify = self.folder / "notify"
        notify.unlink(missing_ok=True)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told, (self.folder / "log").open("ab") as log:
            told.bind(str(notify))
            told.settimeout(60)
            self.process = subprocess.Popen(
                [BUILD / "gpushmd", *self.options, "--config", self.folder / "conf", "--socket", self.socket],
                env=os.environ | self.env | {"NOTIFY_SOCKET": str(notify)},
                stderr=log,
                preexec_fn=_die_with_parent,
            )
            while b"READY=1" not in told.recv(4096):
                pass

    def signal(self, what: signal.Signals) -> None:
        """Sends it a signal that it survives."""
        assert self.process is not None
        self.process.send_signal(what)

    def kill(self) -> None:
        """Ends it as a crash does."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """Ends it as an administrator does."""
        assert self._end(signal.SIGTERM) == 0, (self.folder / "log").read_text()

    def _end(self, how: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(60)
        self.process = None
        return status

    def remove(self) -> None:
        """Ends it, if it runs, and removes its folder."""
        if self.process is not None:
            self.stop()
        shutil.rmtree(self.folder)
