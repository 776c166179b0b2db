# SPDX-License-Identifier: MIT
"""A daemon and a relay on this machine's loopback, for tests that need no network of their own."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

from namespaces import die_with_parent

from daemon import BUILD, Daemon

TIMEOUT = 60  # seconds; to fail rather than to hang, never to be right
POOLS = "[pool host]\nkind=host\nsize=512M\n"


class Reply:
    """What a server has said."""

    def __init__(self, reply: http.client.HTTPResponse) -> None:
        self.status = reply.status
        self.headers = reply.headers
        self.body = reply.read()

    @property
    def json(self) -> Any:
        """The body."""
        return json.loads(self.body)

    @property
    def error(self) -> str:
        """Its text."""
        return str(self.json["error"])


class Here:
    """A daemon and a relay. Use it in a with statement."""

    def __init__(self, config: str = "", *, pools: str = POOLS, first: str = "", **env: str) -> None:
        self.daemon = Daemon(pools, **env)
        self.env = os.environ | env | {"GPUSHM_SOCKET": self.daemon.socket}
        self.config = self.daemon.folder / "relay.conf"
        self.config.write_text(f"[relay]\nlisten=127.0.0.1:0\n{first}{config}")
        self.lines: list[str] = []
        self.process: subprocess.Popen[str] = subprocess.Popen(
            [BUILD / "gpushm-relay", "--config", self.config],
            env=self.env,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=die_with_parent,
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.lines.append(line)
            if found := re.search(r"serves (https?)://127\.0\.0\.1:(\d+)/", line):
                self.scheme, self.port = found.group(1), int(found.group(2))
                break
        else:
            raise AssertionError("".join(self.lines))
        self._reader = threading.Thread(target=lambda: self.lines.extend(self.process.stderr or ()))
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self.process.wait(TIMEOUT)
        self._reader.join()
        self.process.stderr.close()  # type: ignore[union-attr]
        if self.daemon.process is not None:
            self.daemon.remove()
        assert status == 0 or kind is not None, f"{status}: {''.join(self.lines)}"

    def ctl(self, *arguments: object) -> str:
        """Runs gpushmctl."""
        command = [str(BUILD / "gpushmctl"), *map(str, arguments)]
        done = subprocess.run(command, env=self.env, text=True, capture_output=True, check=False, timeout=TIMEOUT)
        assert done.returncode == 0, f"{arguments}: {done.stderr}"
        return done.stdout

    def connect(self, context: ssl.SSLContext | None = None) -> http.client.HTTPConnection:
        """A connection, which the caller closes."""
        if context:
            return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=TIMEOUT, context=context)
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=TIMEOUT)

    def ask(
        self,
        path: str,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: bytes | None = None,
        context: ssl.SSLContext | None = None,
    ) -> Reply:
        """One request with a connection of its own."""
        c = self.connect(context)
        try:
            c.request(method, path, body=body, headers=dict(headers or {}))
            return Reply(c.getresponse())
        finally:
            c.close()

    def await_name(self, name: str) -> Reply:
        """Returns when the relay knows the buffer: its manifest."""
        reply = self.ask(f"/v1/manifests/{name}", {"Prefer": "wait=50"})
        assert reply.status == 200, reply.body
        return reply

    def load(self, path: Path, name: str) -> Reply:
        """Loads a file, and returns when the relay offers it."""
        self.ctl("load", path, name)
        return self.await_name(name)

    def raw(self) -> socket.socket:
        """A connection without HTTP."""
        s = socket.create_connection(("127.0.0.1", self.port), TIMEOUT)
        s.settimeout(TIMEOUT)
        return s

    def memory(self) -> int:
        """Bytes of memory that are the relay's own: neither files nor what it shares."""
        text = Path(f"/proc/{self.process.pid}/status").read_text()
        found = re.search(r"RssAnon:\s+(\d+) kB", text)
        assert found is not None
        return int(found.group(1)) << 10
