# SPDX-License-Identifier: MIT
"""A process's connections to holders: to that of its node, and to those of the nodes whose objects it owns."""

from __future__ import annotations

import errno
import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
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
        context = ray.get_runtime_context() if ray.is_initialized() else None
        return context and (context.gcs_address, context.get_job_id())
    return None


Answers: TypeAlias = "queue.SimpleQueue[str]"  # of one question


class Line:
    """What is said or asked, once."""

    def __init__(self, *words: str) -> None:
        self.text, self.verb, self.key = " ".join(words), *words[:2]
        self.is_over = False  # it is sent, or nobody waits for its answer any more
        self.answers: Answers | None = None
        self.wire: Wire | None = None  # on which it was asked


class Wire:
    """A socket, and what has been asked by it."""

    def __init__(self, made: socket.socket) -> None:
        self.socket, self.is_over = made, False
        self.asked: deque[Answers] = deque()

    def end(self) -> None:
        """The thread that reads it answers all open questions with an error then."""
        self.is_over = True
        with suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)


class Link:
    """One connection. What is said a thread sends: an object's __del__ says things in any thread and under any lock.

    on_word: gets what the holder says of itself, and "left" when the connection has ended, "tick" from time to time.
    """

    def __init__(self, connect: Callable[[], socket.socket], on_word: Callable[[str, str], None] | None = None) -> None:
        self._connect, self._on_word = connect, on_word or (lambda verb, key: None)
        self._lines: deque[Line] = deque()
        self._said: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._sending, self._asking = threading.Lock(), threading.Lock()
        self._holds: set[str] = set()
        self._cluster = _cluster()
        self._wire: Wire | None = None
        threading.Thread(target=self._run, daemon=True).start()

    def say(self, verb: str, key: str) -> None:
        """Sends that; nobody answers."""
        self._lines.append(Line(verb, key))
        self._said.put(None)

    def ask(self, *words: str) -> str:
        """What the holder answers. NotFound: it has no such object, or the daemon no such buffer. OSError: it refuses
        otherwise, or is not there.
        """
        line = Line(*words)
        answers = line.answers = queue.SimpleQueue()
        with self._asking:
            try:
                self._lines.append(line)
                if not self._flush(blocking=False):  # else there is a thread less to wait for
                    self._said.put(None)
                answer = answers.get(timeout=PATIENCE)
            except queue.Empty:
                if line.wire is not None:
                    line.wire.end()
                raise TimeoutError(f"gpushm.ray: the holder of objects does not answer ({words[0]})") from None
            finally:
                line.is_over = True
        if not answer.startswith("ok"):
            if answer.startswith("no NotFound"):
                raise _core.NotFound(errno.ENOENT, f"gpushm.ray: {answer[3:]}")
            raise OSError(f"gpushm.ray: {answer[3:]}")
        return answer[3:]

    def _run(self) -> None:
        while True:
            try:
                self._said.get(timeout=TICK)
            except queue.Empty:
                self._on_word("tick", "")
            self._flush()

    def _flush(self, blocking: bool = True) -> bool:
        """Sends all lines in their order. Returns False, if another thread does."""
        if not self._sending.acquire(blocking):
            return False
        try:
            while True:
                if (cluster := _cluster()) != self._cluster:
                    # Ray's manager keeps metadata after ray.shutdown(): the connection's end ends what they hold.
                    self._cluster = cluster
                    self._holds.clear()
                    self._end()
                if not self._lines:
                    return True
                # It stays there until it is sent: a KeyboardInterrupt may come at any point.
                if not self._lines[0].is_over:
                    self._send(self._lines[0])
                self._lines.popleft()
        finally:
            self._sending.release()

    def _send(self, line: Line) -> None:
        if line.verb == "hold":
            self._holds.add(line.key)
        elif line.verb == "drop":
            self._holds.discard(line.key)
        for is_last in False, True:
            line.wire = None
            try:
                wire = self._opened()
                if line.answers is not None:
                    line.wire = wire
                    wire.asked.append(line.answers)
                line.is_over = True
                return wire.socket.sendall(f"{line.text}\n".encode())
            except Exception as e:  # also what Ray says where it is asked for the node's address
                if line.wire is not None and line.answers is not None:
                    try:
                        line.wire.asked.remove(line.answers)
                    except ValueError:
                        return None  # its reader has answered
                self._end()
                if line.answers is not None and is_last:
                    line.answers.put(f"no {e}")
            except BaseException:
                self._end()  # a part of it may be sent
                raise
        return None

    def _end(self) -> None:
        if self._wire is not None:
            self._wire.end()

    def _opened(self) -> Wire:
        if self._wire is None or self._wire.is_over:
            made = self._connect()
            made.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(PATIENCE), 0))
            made.sendall("".join(f"hold {key}\n" for key in self._holds).encode())
            self._wire = Wire(made)
            threading.Thread(target=self._read, args=(self._wire,), daemon=True).start()
        return self._wire

    def _read(self, wire: Wire) -> None:
        try:
            with suppress(OSError, IndexError), wire.socket, wire.socket.makefile("r") as lines:
                for line in lines:
                    verb, _, key = line.rstrip("\n").partition(" ")
                    if verb in ("ok", "no"):
                        wire.asked.popleft().put(line.rstrip("\n"))
                    else:
                        self._on_word(verb, key)
            self._on_word("left", "")
        finally:
            wire.is_over = True
            while wire.asked:  # What is sent from now on fails: the socket is closed.
                wire.asked.popleft().put("no the holder of objects has ended")


_links: dict[object, Link] = {}
_lock = threading.Lock()


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
    raise ConnectionRefusedError(f"{_holder.__name__} does not listen on {place[1:]}")


def _start(host: str) -> None:
    """It may not be limited to the GPUs of the actor that starts it."""
    env = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
    env["PYTHONPATH"] = os.pathsep.join([str(Path(__file__).parents[2]), env.get("PYTHONPATH", "")]).rstrip(":")
    words = [sys.executable, "-P", "-m", _holder.__name__, host]
    no = subprocess.DEVNULL
    subprocess.run(words, env=env, stdin=no, stdout=no, stderr=no, cwd="/", start_new_session=True, check=False)
