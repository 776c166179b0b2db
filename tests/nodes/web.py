# SPDX-License-Identifier: MIT
"""A web server with faults.

It serves what is in `files`, by ranges as RFC 9110 has them. A fault is a function of the request, which is called
before that: it returns True if it has answered, or changes the reply that follows.
"""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast
from urllib.parse import urlsplit


@dataclass
class File:
    """What is at a path."""

    data: bytes
    etag: str | None = ""  # "": of the data; None: none is sent
    modified: str | None = "Sun, 06 Nov 1994 08:49:37 GMT"
    ranges: bool = True
    sized: bool = True  # False: chunks, without Content-Length

    def __post_init__(self) -> None:
        if self.etag == "":
            self.etag = f'"{hashlib.sha256(self.data).hexdigest()[:16]}"'


@dataclass
class Seen:
    """A request that has come."""

    method: str
    path: str  # without the query
    query: str
    headers: dict[str, str]  # in lower case

    @property
    def first(self) -> int | None:
        """The first byte that it asks for."""
        found = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("range", ""))
        return int(found[1]) if found else None


class Request(BaseHTTPRequestHandler):
    """A request, and how it is answered. Faults change its attributes, or answer by its methods."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    web: Web
    seen: Seen
    number: int  # 1 for the first request of its path
    extra: dict[str, str]  # header lines that are added, or replace others
    cut: int | None  # bytes of the body before the connection ends
    stall: int | None  # the same before nothing comes any more

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""

    def handle(self) -> None:
        """Until the client goes away."""
        try:
            super().handle()
        except (ConnectionError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def do_GET(self) -> None:
        """Runs the faults, then answers."""
        self.web = cast("Server", self.server).web
        url = urlsplit(self.path)
        self.seen = Seen(self.command, url.path, url.query, {k.lower(): v for k, v in self.headers.items()})
        self.extra, self.cut, self.stall = {}, None, None
        with self.web.lock:
            self.web.seen.append(self.seen)
            self.number = sum(s.path == url.path for s in self.web.seen)
        for fault in self.web.faults:
            if fault(self):
                return
        self.serve(self.web.files.get(url.path))

    do_HEAD = do_GET

    def reply(self, status: int, body: bytes = b"", **headers: str) -> bool:
        """Answers. The '_' in names of headers is a '-'."""
        self.send_response(status)
        lines = {"Content-Length": str(len(body))} | {k.replace("_", "-"): v for k, v in headers.items()}
        for key, value in (lines | self.extra).items():
            self.send_header(key, value)
        self.end_headers()
        self.send(body)
        return True

    def send(self, body: bytes) -> None:
        """The body, or its first bytes."""
        end = min(len(body), *(n for n in (self.cut, self.stall) if n is not None), len(body))
        self.wfile.write(body[:end])
        self.wfile.flush()
        if self.stall is not None:
            self.web.ended.wait()
        if self.cut is not None or self.stall is not None:
            self.close_connection = True

    def serve(self, file: File | None) -> None:
        """As a faultless server."""
        if file is None:
            self.reply(404)
            return
        lines = {"ETag": file.etag, "Last-Modified": file.modified}
        headers = {k: v for k, v in lines.items() if v is not None}
        wanted = self.headers.get("If-Range")
        first = self.seen.first
        if first is None or not file.ranges or (wanted and wanted not in (file.etag, file.modified)):
            self._whole(file, headers)
            return
        if first >= len(file.data):
            self.reply(416, **{"Content-Range": f"bytes */{len(file.data)}"})
            return
        last = min(int(self.headers["Range"].rpartition("-")[2] or 1 << 62), len(file.data) - 1)
        headers["Content-Range"] = f"bytes {first}-{last}/{len(file.data)}"
        self.reply(206, file.data[first : last + 1], **headers)

    def _whole(self, file: File, headers: dict[str, str]) -> None:
        if file.sized:
            self.reply(200, file.data, **headers)
            return
        self.send_response(200)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for at in range(0, len(file.data), 1 << 16):
            chunk = file.data[at : at + (1 << 16)]
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.wfile.write(b"0\r\n\r\n")


Fault = Callable[[Request], object]


class Server(ThreadingHTTPServer):
    """Ends with the tests."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    web: Web

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away, or does not like a certificate, is no error."""


@dataclass
class Web:
    """A server on a port of its own."""

    files: dict[str, File] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    tls: ssl.SSLContext | None = None
    host: str = "127.0.0.1"
    port: int = 0
    seen: list[Seen] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.server = Server((self.host, self.port), Request)
        self.server.web = self
        if self.tls is not None:
            # A handshake in the thread of its connection, or a slow client would stop all.
            self.server.socket = self.tls.wrap_socket(
                self.server.socket, server_side=True, do_handshake_on_connect=False
            )
        self.port = self.server.server_address[1]
        self.url = f"{'https' if self.tls else 'http'}://{self.host}:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self.thread.start()

    def end(self) -> None:
        """Ends it, and what stalls."""
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def of(self, path: str) -> list[Seen]:
        """The requests of a path."""
        with self.lock:
            return [s for s in self.seen if s.path == path]
