# SPDX-License-Identifier: MIT
"""This machine, without namespaces: a daemon, a relay on the loopback, and commands that run."""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

from namespaces import die_with_parent

from daemon import BUILD, Daemon

TIMEOUT = 60  # to fail rather than to hang
CTL = BUILD / "gpushmctl"
POOLS = "[pool host]\nkind=host\nsize=256M\n"


class Here:
    """A daemon and the tools."""

    def __init__(self, pools: str = POOLS, **env: str) -> None:
        self.daemon = Daemon(pools, **env)

    @property
    def env(self) -> dict[str, str]:
        keep = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        return keep | self.daemon.env | {"GPUSHM_SOCKET": self.daemon.socket, "HOME": str(self.daemon.folder)}

    def ctl(self, *arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
        command = [str(CTL), *map(str, arguments)]
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=TIMEOUT, check=False)
        assert done.returncode == code, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
        return done

    def start(self, *arguments: object) -> Running:
        return Running([str(CTL), *map(str, arguments)], self.env)

    def names(self) -> list[str]:
        """All buffers, private ones too."""
        return self.ctl("ls", "--names-only").stdout.splitlines()

    def stat(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ctl("stat", "--json", name).stdout)
        return found

    def attributes(self, name: str) -> dict[str, Any]:
        """A private buffer, of which names() tells, may have none yet."""
        found: dict[str, Any] = self.stat(name).get("attrs", {})
        return found

    def bytes_of(self, name: str, tmp_path: Path) -> bytes:
        """What the buffer is as a file."""
        path = tmp_path / "saved.safetensors"
        self.ctl("save", "-q", name, path)
        return path.read_bytes()

    def data_of(self, name: str, tmp_path: Path) -> bytes:
        """Its tensors."""
        file = self.bytes_of(name, tmp_path)
        return file[8 + int.from_bytes(file[:8], "little") :]


class Running:
    """A command that runs. Lines of its output come as they are written."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            command,
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        self.lines: dict[str, queue.Queue[str]] = {"out": queue.Queue(), "err": queue.Queue()}
        self._threads = [
            threading.Thread(target=self._read, args=(stream, self.lines[name]), daemon=True)
            for name, stream in (("out", self.process.stdout), ("err", self.process.stderr))
        ]
        for thread in self._threads:
            thread.start()

    @staticmethod
    def _read(stream: Any, lines: queue.Queue[str]) -> None:
        for line in stream:
            lines.put(line.rstrip("\n"))

    def line(self, of: str = "out") -> str:
        return self.lines[of].get(timeout=TIMEOUT)

    def end(self, how: int = signal.SIGINT) -> int:
        self.process.send_signal(how)
        return self.wait()

    def wait(self) -> int:
        status = self.process.wait(TIMEOUT)
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()
        return status


class Relay:
    """A gpushm-relay of this machine, on its loopback without TLS."""

    def __init__(self, of: Here, config: str = "") -> None:
        self.of, self.port = of, 0
        self.config = of.daemon.folder / "relay.conf"
        self.more = config
        self.start()

    def start(self) -> None:
        """Returns when it listens; after a restart at the port that it had."""
        self.config.write_text(f"[relay]\nlisten=127.0.0.1:{self.port}\nsocket={self.of.daemon.socket}\n{self.more}")
        self.running = Running([str(BUILD / "gpushm-relay"), "--config", str(self.config)], self.of.env)
        lines = []
        while not (found := re.search(r"http://127.0.0.1:(\d+)", lines[-1] if lines else "")):
            lines.append(self.running.line("err"))
        self.port = int(found[1])

    def source(self, name: str) -> str:
        """The URL of a buffer."""
        return f"http://127.0.0.1:{self.port}/v1/buffers/{name}"

    def end(self, how: int = signal.SIGTERM) -> int:
        """Its status."""
        return self.running.end(how)
