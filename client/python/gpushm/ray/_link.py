# SPDX-License-Identifier: MIT
"""A process's connections to holders: to that of its node, and to those of the nodes whose objects it owns."""

from __future__ import annotations

import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import gpushm

from . import _holder

TICK = 5.0  # seconds in which the end of the cluster is noticed
PATIENCE = 60.0  # seconds for an answer
Address: TypeAlias = tuple[str, int, str]  # of a holder: host, port, token


def _cluster() -> object:
    """What this process is connected to; None: nothing."""
    import ray

    if not ray.is_initialized():
        return None
    context = ray.get_runtime_context()
    return context.gcs_address, context.get_job_id()


class Link:
    """One connection. What is sent from an object's __del__, in whatever thread and lock, must not wait: a thread sends."""

    def __init__(self, connect: Callable[[], socket.socket], on_gone: Callable[[str], None] | None = None) -> None:
        self._connect, self._on_gone = connect, on_gone
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._asking = threading.Lock()
        self._holds: set[str] = set()
        self._cluster = _cluster()
        self._socket: socket.socket | None = None
        threading.Thread(target=self._send, name="gpushm.ray", daemon=True).start()

    def say(self, verb: str, key: str) -> None:
        """Sends that; nobody answers."""
        self._lines.put(f"{verb} {key}")

    def ask(self, *words: str) -> str:
        """What the holder answers. OSError: it has refused, or is not there."""
        with self._asking:
            self._lines.put(" ".join(words))
            try:
                answer = self._answers.get(timeout=PATIENCE)
            except queue.Empty:
                if self._socket is not None:
                    self._socket.shutdown(socket.SHUT_RDWR)  # An answer that comes later is nobody's.
                raise TimeoutError(f"gpushm.ray: the holder of objects does not answer ({words[0]})") from None
        if not answer.startswith("ok"):
            raise OSError(f"gpushm.ray: {answer[3:]}")
        return answer[3:]

    def _send(self) -> None:
        while True:
            try:
                line = self._lines.get(timeout=TICK if self._holds else None)
            except queue.Empty:
                self._leave_cluster()
                continue
            verb, _, key = line.partition(" ")
            if verb == "hold":
                self._leave_cluster()
                self._holds.add(key)
            elif verb == "drop":
                self._holds.discard(key)
            error: OSError | None = None
            for _ in range(2):
                try:
                    self._open().sendall(f"{line}\n".encode())
                    break
                except OSError as e:
                    self._socket, error = None, e
            else:
                if verb not in ("hold", "drop", "end", "spent", "watch"):
                    self._answers.put(f"no {error}")

    def _leave_cluster(self) -> None:
        """After ray.shutdown() Ray's manager still has all metadata."""
        if (cluster := _cluster()) != self._cluster:
            self._cluster = cluster
            self._holds.clear()
            if self._socket is not None:
                self._socket.shutdown(socket.SHUT_RDWR)
                self._socket = None

    def _open(self) -> socket.socket:
        if self._socket is None:
            new = self._connect()
            new.sendall("".join(f"hold {key}\n" for key in self._holds).encode())
            threading.Thread(target=self._read, args=(new,), name="gpushm.ray", daemon=True).start()
            self._socket = new
        return self._socket

    def _read(self, connection: socket.socket) -> None:
        with suppress(OSError), connection.makefile("r") as lines:
            for line in lines:
                verb, _, key = line.rstrip("\n").partition(" ")
                if verb != "gone":
                    self._answers.put(line.rstrip("\n"))
                elif self._on_gone:
                    self._on_gone(key)
        if self._socket is connection:
            self._socket = None
            if self._asking.locked():
                self._answers.put("no the holder of objects has ended")
        connection.close()


_links: dict[object, Link] = {}
_lock = threading.Lock()


def to(address: Address) -> Link:
    """The connection to the holder of a node."""

    def connect() -> socket.socket:
        made = socket.create_connection(address[:2], timeout=10)
        made.settimeout(None)
        _holder.kept_alive(made)
        made.sendall(f"{address[2]}\n".encode())
        return made

    with _lock:
        if address not in _links:
            _links[address] = Link(connect)
        return _links[address]


def here(host: str, on_gone: Callable[[str], None]) -> Link:
    """The connection to the holder of this node, which is started where there is none."""
    with _lock:
        if "here" not in _links:
            _links["here"] = Link(lambda: _started(host), on_gone)
        return _links["here"]


def _started(host: str) -> socket.socket:
    place = _holder.place(host)
    for attempt in range(50):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(place)
        except ConnectionRefusedError:
            made.close()
            if attempt == 49:
                raise
            # Of two that are started at once one returns before the other listens.
            time.sleep(0.1 if attempt else 0)
            _start(host)
            continue
        peer = made.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _holder._PEER.size)
        if _holder._PEER.unpack(peer)[1] != os.geteuid():
            made.close()
            raise PermissionError(f"{place[1:]} is another user's")
        return made
    raise AssertionError


def _start(host: str) -> None:
    """Returns when it listens. It may not be limited to the GPUs of the actor that starts it."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(gpushm.__file__).parents[1]), env.get("PYTHONPATH", "")]).rstrip(":")
    quiet = subprocess.DEVNULL
    words = [sys.executable, "-P", "-m", _holder.__name__, host]
    done = subprocess.run(words, env=env, stdin=quiet, stdout=quiet, stderr=quiet, cwd="/", start_new_session=True)
    if done.returncode != 0:
        raise OSError(f"gpushm.ray: {' '.join(words)} fails with status {done.returncode}")
