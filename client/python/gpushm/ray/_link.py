# SPDX-License-Identifier: MIT
"""A process's connections to holders: to that of its node, and to those of the nodes whose objects it owns."""

from __future__ import annotations

import errno
import itertools
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import ray

from .. import _core
from . import _holder
from ._store import store

TICK = 5.0  # seconds in which the end of the cluster is noticed
PATIENCE = 60.0  # seconds for an answer
Address: TypeAlias = tuple[str, int, str]  # of a holder: host, port, token


def _cluster() -> object:
    """What this process is connected to; None: nothing."""
    with suppress(Exception):  # while another thread shuts Ray down
        return ray.is_initialized() and ray._private.worker.global_worker.current_cluster_and_job
    return None


class Link:
    """One connection, with a thread: an object's __del__ says things in any thread and under any lock.

    on_word: gets what the holder says of itself, and "left" when the connection has ended, "tick" from time to time.
    """

    def __init__(self, connect: Callable[[], socket.socket], on_word: Callable[[str, str], None] | None = None) -> None:
        self._connect, self._on_word = connect, on_word or (lambda verb, key: None)
        self._lines: deque[tuple[tuple[str, ...], Future[str] | None]] = deque()  # to be sent by the thread
        self._asked: dict[int, Future[str]] = {}
        self._numbers = itertools.count()
        self._said = os.eventfd(0, os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._said, select.POLLIN)
        self._socket: socket.socket | None = None
        self._sending = threading.Lock()
        self._input = b""
        self._holds: set[str] = set()
        self._cluster = _cluster()
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, verb: str, key: str) -> None:
        """Sends that; nobody answers."""
        self._send_soon((verb, key), None)

    def asked(self, *words: str) -> Future[str]:
        """Sends a question; wait() has the answer."""
        question: Future[str] = Future()
        question.set_running_or_notify_cancel()
        if not self._send_now(words, question):
            question = Future()
            self._send_soon(words, question)
        return question

    def tell(self, *words: str) -> bool:
        """Sends that before it returns. False: there is no connection, and nothing was sent."""
        return self._send_now(words, None)

    def wait(self, question: Future[str]) -> str:
        """What the holder answers. NotFound: it has no such object, or the daemon no such buffer. TimeoutError: it does
        not answer, or the question is done and the object's GPU is not. OSError: it refuses otherwise, or is not there.
        """
        try:
            verb, _, said = question.result(PATIENCE).partition(" ")
        except TimeoutError:
            raise TimeoutError("gpushm.ray: the holder of objects does not answer") from None
        finally:
            question.cancel()  # one that is interrupted is not sent any more
        if verb == "ok":
            return said
        if said.startswith("NotFound"):
            raise _core.NotFound(errno.ENOENT, f"gpushm.ray: {said}")
        if said.startswith("TimeoutError"):
            raise TimeoutError("gpushm.ray: the GPU of the object's source has not made it yet")
        raise OSError(f"gpushm.ray: {said}")

    def ask(self, *words: str) -> str:
        """asked(), and wait() for it."""
        return self.wait(self.asked(*words))

    def _send_soon(self, words: tuple[str, ...], question: Future[str] | None) -> None:
        self._lines.append((words, question))
        os.eventfd_write(self._said, 1)

    def _send_now(self, words: tuple[str, ...], question: Future[str] | None) -> bool:
        """From this thread, whose KeyboardInterrupt does not come in the middle of a line to an AF_UNIX socket."""
        with suppress(OSError), self._sending:
            if self._socket and self._socket.family == socket.AF_UNIX and _cluster() == self._cluster:
                self._write(self._socket, words, question)
                return True
        return False

    def _write(self, to: socket.socket, words: tuple[str, ...], question: Future[str] | None) -> None:
        number = next(self._numbers)
        if question:
            self._asked[number] = question
            words = (str(number), *words)
        try:
            to.sendall(f"{' '.join(words)}\n".encode())
        except OSError:
            self._asked.pop(number, None)
            raise

    # ---- in the thread ----

    def _run(self) -> None:
        tick = time.monotonic() + TICK
        while True:
            ready = [fd for fd, _ in self._poll.poll(max(0, tick - time.monotonic()) * 1000)]
            try:
                if time.monotonic() >= tick:
                    tick = time.monotonic() + TICK
                    self._see_cluster()
                    self._on_word("tick", "")
                self._take(ready)
            except Exception:  # of what on_word() does
                self._end()

    def _take(self, ready: list[int]) -> None:
        if self._said in ready:
            os.eventfd_read(self._said)
        if self._socket and self._socket.fileno() in ready:
            self._read(self._socket)
        while self._lines:
            words, question = self._lines.popleft()
            if question is None or question.set_running_or_notify_cancel():
                self._send(words, question)

    def _see_cluster(self) -> None:
        """Ray's manager keeps metadata after ray.shutdown(): the connection's end ends what they hold."""
        if (cluster := _cluster()) != self._cluster:
            self._cluster = cluster
            self._holds.clear()
            self._end()

    def _send(self, words: tuple[str, ...], question: Future[str] | None) -> None:
        self._see_cluster()
        if words[0] == "hold":
            self._holds.add(words[1])
        elif words[0] == "drop":
            self._holds.discard(words[1])
        for is_last in False, True:
            try:
                connection = self._opened()
                with self._sending:
                    self._write(connection, words, question)
                return
            except Exception as e:  # also what Ray says where it is asked for the node's address
                self._end()
                if question and is_last:
                    question.set_result(f"no {e}")

    def _opened(self) -> socket.socket:
        if self._socket is None:
            made = self._connect()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
            made.sendall("".join(f"hold {key}\n" for key in self._holds).encode())
            self._poll.register(made, select.POLLIN)
            self._socket = made
        return self._socket

    def _read(self, connection: socket.socket) -> None:
        try:
            data = connection.recv(1 << 16)
        except OSError:
            data = b""
        *lines, self._input = (self._input + data).split(b"\n")
        for line in map(bytes.decode, lines):
            verb, _, key = line.partition(" ")
            if not verb.isdigit():
                self._on_word(verb, key)
            elif question := self._asked.pop(int(verb), None):
                question.set_result(key)
        if not data:
            self._end()

    def _end(self) -> None:
        if self._socket is None:
            return
        self._poll.unregister(self._socket)
        with self._sending:
            self._socket.close()
            self._socket, self._input = None, b""
            asked, self._asked = self._asked, {}
        with suppress(Exception):
            self._on_word("left", "")
        for question in asked.values():
            question.set_result("no the holder of objects has ended")


_links: dict[object, Link] = {}
_lock = threading.Lock()
os.register_at_fork(after_in_child=_links.clear)  # their threads are the parent's


def to(address: Address) -> Link:
    """The connection to the holder of a node."""

    def connect() -> socket.socket:
        made = socket.create_connection(address[:2], timeout=10)
        made.settimeout(None)
        _holder.keep_alive(made)
        made.sendall(f"{address[2]}\n".encode())
        return made

    with _lock:
        return _links.get(address) or _links.setdefault(address, Link(connect))


def here() -> Link:
    """The connection to the holder of this node. Starts a holder where none runs."""
    with _lock:
        return _links.get("here") or _links.setdefault("here", Link(lambda: _started(node_address()), store.on_word))


store.on_full = lambda: here().say("room", "-")


def node_address() -> str:
    """The address of this node, as other nodes know it."""
    return str(ray.util.get_node_ip_address())


def _started(host: str) -> socket.socket:
    place = _holder.place(host)
    for attempt in range(50):
        made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            made.connect(place)
        except ConnectionRefusedError:
            made.close()
            time.sleep(0.1 if attempt else 0)  # Of two that are started at once one returns before the other listens.
            _start(host)
            continue
        if not _holder.is_ours(made):
            raise PermissionError(f"the socket {place[1:]} is another user's")
        return made
    raise ConnectionRefusedError(f"gpushm.ray: the holder of objects does not listen on {place[1:]}")


def _start(host: str) -> None:
    """It may not be limited to the GPUs of the actor that starts it."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")]).rstrip(":")
    words = [sys.executable, "-P", _holder.__file__, host]
    no = subprocess.DEVNULL
    subprocess.run(words, env=env, stdin=no, stdout=no, stderr=no, cwd="/", start_new_session=True, check=False)
