# SPDX-License-Identifier: MIT
"""A cable that delays, for kernels without sch_netem: two TAP devices, and a process that passes frames on.

delay_line.py OUTER NAMESPACE INNER MILLISECONDS: OUTER is made here, INNER in the namespace.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import selectors
import struct
import sys
import time
from collections import deque

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 2, 0x1000  # linux/if_tun.h
_CLONE_NEWNET = 0x40000000
_FRAMES_MAX = 100_000


def tap(name: str) -> int:
    """Makes a TAP device in the present namespace."""
    fd = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(fd, _TUNSETIFF, struct.pack("16sH22x", name.encode(), _IFF_TAP | _IFF_NO_PI))
    return fd


def main(outer: str, namespace: str, inner: str, milliseconds: str) -> None:
    """Passes frames on for ever."""
    delay = float(milliseconds) / 1000
    first = tap(outer)
    with open(namespace) as ns:
        if ctypes.CDLL(None).setns(ns.fileno(), _CLONE_NEWNET) != 0:
            sys.exit("setns failed")
    second = tap(inner)
    print("ready", flush=True)
    queues: dict[int, deque[tuple[float, bytes]]] = {first: deque(), second: deque()}
    other = {first: second, second: first}
    selector = selectors.DefaultSelector()
    for fd in other:
        selector.register(fd, selectors.EVENT_READ)
    while True:
        due = min((q[0][0] for q in queues.values() if q), default=None)
        for key, _ in selector.select(None if due is None else max(due - time.monotonic(), 0)):
            receive(key.fd, queues[other[key.fd]], delay)
        for fd, queue in queues.items():
            while queue and queue[0][0] <= time.monotonic():
                send(fd, queue.popleft()[1])


def receive(fd: int, queue: deque[tuple[float, bytes]], delay: float) -> None:
    """Reads the frames that are there."""
    for _ in range(64):
        try:
            frame = os.read(fd, 65536)
        except BlockingIOError:
            return
        if len(queue) < _FRAMES_MAX:
            queue.append((time.monotonic() + delay, frame))


def send(fd: int, frame: bytes) -> None:
    """Sends a frame; one that the device does not take is lost, as on a cable that is down."""
    with contextlib.suppress(OSError):
        os.write(fd, frame)


if __name__ == "__main__":
    main(*sys.argv[1:])
