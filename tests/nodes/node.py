# SPDX-License-Identifier: MIT
"""A machine with a daemon, a relay, and the tools."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from certificates import Authority, Certificate
from namespaces import Machine, die_with_parent

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

from daemon import BUILD, Daemon

TIMEOUT = 120  # seconds; to fail rather than to hang, never to be right


class Relay:
    """A gpushm-relay that listens at a port of its own."""

    def __init__(self, node: Node, config: str, port: int = 0) -> None:
        self.node = node
        self.config = Path(tempfile.mkstemp(prefix="relay-", dir=node.daemon.folder)[1])
        self.config.write_text(config)
        self.log = self.config.with_suffix(".log")
        self.url = ""
        self.process: subprocess.Popen[str] | None = None
        self.start(port)

    def start(self, port: int = 0) -> None:
        """Returns when it says where it listens. port: the one that it had, after a restart."""
        self.process = self.node.start(
            BUILD / "gpushm-relay",
            *["--config", self.config, "--listen", f"{self.node.address}:{port}"],
            env=self.node.env,
            stderr=subprocess.PIPE,
        )
        assert self.process.stderr is not None
        lines = []
        for line in self.process.stderr:
            lines.append(line)
            if found := re.search(r"https?://[^\s/]+:(\d+)", line):
                self.url, self.port = found.group(0), int(found.group(1))
                break
        else:
            raise AssertionError(f"no relay: {''.join(lines)}")
        with self.log.open("a") as log:
            log.writelines(lines)
        self._reader = threading.Thread(target=self._drain, args=(self.process,))
        self._reader.start()

    def _drain(self, process: subprocess.Popen[str]) -> None:
        assert process.stderr is not None
        with self.log.open("a") as log:
            for line in process.stderr:
                log.write(line)
                log.flush()

    def end(self, how: int = signal.SIGTERM) -> int:
        """Ends it and returns its status."""
        assert self.process is not None
        self.process.send_signal(how)
        status = self.process.wait(TIMEOUT)
        self._reader.join()
        self.process = None
        return status

    def source(self, name: str) -> str:
        """The URL of a buffer."""
        return f"{self.url}/v1/buffers/{name}"


class Node(Machine):
    """A machine. Its daemon starts when it is first used."""

    def __init__(self, *, pools: str = "[pool host]\nkind=host\nsize=256M\n", delay_ms: float = 0) -> None:
        super().__init__(delay_ms=delay_ms)
        self._pools = pools
        self._daemon: Daemon | None = None
        self._relays: list[Relay] = []
        self.certificate: Certificate | None = None
        self.authority: Authority | None = None

    @property
    def daemon(self) -> Daemon:
        """Its gpushmd."""
        if self._daemon is None:
            self._daemon = Daemon(self._pools)
        return self._daemon

    @property
    def env(self) -> dict[str, str]:
        """The environment of programs in it: the daemon's socket, and what it shows to relays."""
        env = os.environ | {"GPUSHM_SOCKET": self.daemon.socket}
        if self.authority is not None:
            env["GPUSHM_TLS_CA"] = str(self.authority.cert)
        if self.certificate is not None:
            env |= {"GPUSHM_TLS_CERT": str(self.certificate.cert), "GPUSHM_TLS_KEY": str(self.certificate.key)}
        return env

    def tls(self) -> list[str]:
        """Options of curl(1) for its certificate."""
        if self.certificate is None or self.authority is None:
            return []
        return [
            *["--cacert", str(self.authority.cert)],
            *["--cert", str(self.certificate.cert)],
            *["--key", str(self.certificate.key)],
        ]

    def join(self, authority: Authority) -> None:
        """Gives it a certificate, for its name and its address."""
        self.authority = authority
        self.certificate = authority.issue(self.name, f"DNS:{self.name}", f"IP:{self.address}")

    def relay(self, config: str = "", *, insecure: bool = False, port: int = 0) -> Relay:
        """Starts a relay with its certificate, or without TLS. config: the sections behind [relay]'s first keys."""
        if insecure:
            first = "[relay]\ninsecure=yes\n"
        else:
            assert self.certificate is not None
            assert self.authority is not None
            first = f"[relay]\ncert={self.certificate.cert}\nkey={self.certificate.key}\nca={self.authority.cert}\n"
        self._relays.append(Relay(self, first + config, port))
        return self._relays[-1]

    def ctl(self, *arguments: object, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Runs gpushmctl in it."""
        done = self.run(BUILD / "gpushmctl", *arguments, check=False, env=self.env, timeout=TIMEOUT)
        assert not check or done.returncode == 0, f"gpushmctl {arguments}: {done.stderr}"
        return done

    def start_ctl(self, *arguments: object) -> subprocess.Popen[str]:
        """Starts gpushmctl in it; its output is in pipes."""
        return self.start(BUILD / "gpushmctl", *arguments, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def attributes(self, name: str) -> dict[str, Any]:
        """What `gpushmctl stat --json` says of a buffer."""
        found: dict[str, Any] = json.loads(self.ctl("stat", "--json=short", name).stdout)
        return found

    def remove(self) -> None:
        """Ends its programs, and the machine."""
        for relay in self._relays:
            if relay.process is not None:
                relay.end(signal.SIGKILL)
        super().remove()
        if self._daemon is not None:
            self._daemon.remove()


__all__ = ["BUILD", "TIMEOUT", "Node", "Relay", "die_with_parent"]
