# SPDX-License-Identifier: MIT
"""A relay that lies as it is told. It serves one buffer: its manifest, and its file by ranges."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import json
import random
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

BLOCK = 4 << 20

_xxhash = ctypes.CDLL("libxxhash.so.0")
_xxhash.XXH3_64bits.restype = ctypes.c_uint64
_xxhash.XXH3_64bits.argtypes = [ctypes.c_char_p, ctypes.c_size_t]


def xxh3(data: bytes) -> int:
    """XXH3-64."""
    return int(_xxhash.XXH3_64bits(data, len(data)))


class Generation:
    """A safetensors file, with what a relay says about it."""

    def __init__(
        self,
        size: int = 3 * BLOCK + 1000,
        seed: int = 0,
        *,
        name: str = "m",
        attributes: dict[str, bytes] | None = None,
        metadata: dict[str, str] | None = None,
        tensors: int = 3,
    ) -> None:
        header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
        at = 0
        for i in range(tensors):
            end = size * (i + 1) // tensors
            header[f"layers.{i}.weight"] = {"dtype": "U8", "shape": [end - at], "data_offsets": [at, end]}
            at = end
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self.header = len(text).to_bytes(8, "little") + text
        self.data = random.Random(seed).randbytes(size)
        self.name, self.id = name, 1000 + seed
        self.attributes = attributes or {}
        blocks = [xxh3(self.data[i : i + BLOCK]).to_bytes(8, "little") for i in range(0, size, BLOCK)]
        self.blocks = b"".join(blocks)
        self.content = xxh3(self.blocks)
        self.etag = f'"xxh3-{self.content:016x}-{hashlib.sha256(self.header).hexdigest()[:16]}"'

    @property
    def file(self) -> bytes:
        """All of it."""
        return self.header + self.data

    def manifest(self) -> dict[str, Any]:
        """As gpushm-relay(8) has it."""
        return {
            "version": 1,
            "name": self.name,
            "id": self.id,
            "etag": self.etag,
            "size": len(self.header) + len(self.data),
            "header": len(self.header),
            "data": len(self.data),
            "block": BLOCK,
            "blocks": base64.b64encode(self.blocks).decode(),
            "content": f"xxh3:{self.content:016x}",
            "attributes": {key: base64.b64encode(value).decode() for key, value in self.attributes.items()},
            "complete": True,
            "mirrors": [],
        }


class FakeRelay:
    """Listens on this machine's loopback. The attributes are its lies; all may be set at any time."""

    def __init__(self, generation: Generation | None, port: int = 0) -> None:
        self.generation = generation
        # Called with the manifest, which it changes.
        self.edit_manifest: Callable[[dict[str, Any]], object] = lambda _: None
        # Called with (first byte, bytes) of a range; returns what is sent in its place.
        self.edit_range: Callable[[int, bytes], bytes] = lambda _, data: data
        # Called before a reply with (path, range's first byte or None). True: it has done all that is sent.
        self.before: Callable[[Handler, int | None], bool] = lambda _h, _b: False
        self.ranges = True
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.sent = 0  # bytes of the file
        self.changed = threading.Condition()
        self.server = _Server(("127.0.0.1", port), Handler)
        self.server.relay = self
        self.port = self.server.server_address[1]
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True)
        self._thread.start()

    @property
    def url(self) -> str:
        """Of the buffer."""
        name = self.generation.name if self.generation else "m"
        return f"http://127.0.0.1:{self.port}/v1/buffers/{name}"

    def publish(self, generation: Generation | None) -> None:
        """Replaces the buffer, and wakes those who wait for that."""
        with self.changed:
            self.generation = generation
            self.changed.notify_all()

    def close(self) -> None:
        """Ends it, and all its connections, as a crash does."""
        with self.changed:
            self.changed.notify_all()
        self.server.shutdown()
        self.server.server_close()
        self.server.cut()
        self._thread.join()

    def count(self, path: str) -> int:
        """Requests for paths that begin so."""
        return sum(p.startswith(path) for p, _ in self.requests)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    relay: FakeRelay

    def __init__(self, *arguments: Any) -> None:
        self.open: set[socket.socket] = set()
        self.ended = False
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        self.open.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that goes away is no error of a test."""

    def cut(self) -> None:
        self.ended = True
        for connection in list(self.open):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


class Handler(BaseHTTPRequestHandler):
    """A connection."""

    protocol_version = "HTTP/1.1"
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing."""

    def reply(self, status: int, body: bytes = b"", **headers: str) -> None:
        """Sends all of it."""
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, why: str, **headers: str) -> None:
        """An error as relays have them."""
        self.reply(status, json.dumps({"error": why}).encode(), Content_Type="application/json", **headers)

    def reset(self) -> None:
        """Breaks the connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        relay = self.server.relay
        path = unquote(self.path.partition("?")[0])
        relay.requests.append((path, dict(self.headers)))
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if relay.before(self, int(asked[1]) if asked else None):
            return
        generation = relay.generation
        if path.startswith("/v1/manifests/"):
            self._manifest(relay, path.removeprefix("/v1/manifests/"))
        elif generation is None or path != f"/v1/buffers/{generation.name}":
            self.refuse(404, "there is no such buffer")
        else:
            self._file(relay, generation, asked)

    def _manifest(self, relay: FakeRelay, name: str) -> None:
        seen = self.headers.get("If-None-Match")
        wait = re.search(r"wait=(\d+)", self.headers.get("Prefer", ""))
        with relay.changed:
            if wait and seen:
                relay.changed.wait_for(
                    lambda: relay.generation is None or relay.generation.etag != seen or self.server.ended,
                    int(wait[1]),
                )
            generation = relay.generation
        if generation is None or name != generation.name:
            self.refuse(404, "there is no such buffer")
        elif seen == generation.etag:
            self.send_response(304)
            self.send_header("ETag", generation.etag)
            self.end_headers()
        else:
            manifest = generation.manifest()
            relay.edit_manifest(manifest)
            text = json.dumps(manifest).encode()
            self.reply(200, text, ETag=generation.etag, Content_Type="application/json")

    def _file(self, relay: FakeRelay, generation: Generation, asked: re.Match[str] | None) -> None:
        file = generation.file
        guard = self.headers.get("If-Range")
        if not relay.ranges or asked is None or (guard and guard != generation.etag):
            self.reply(200, file, ETag=generation.etag)
            return
        begin, end = int(asked[1]), min(int(asked[2] or len(file) - 1) + 1, len(file))
        if begin >= len(file):
            self.refuse(416, "out of range", Content_Range=f"bytes */{len(file)}")
            return
        data = relay.edit_range(begin, file[begin:end])
        relay.sent += len(data)
        self.send_response(206)
        self.send_header("Content-Length", str(end - begin))
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(file)}")
        self.send_header("ETag", generation.etag)
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
        if len(data) != end - begin:
            self.reset()
