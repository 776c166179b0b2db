# SPDX-License-Identifier: MIT
"""Twenty services on one GPU, parked while nobody asks them, behind sockets that this program holds.

    python parked_services.py POOL [SERVICES [REQUESTS]]      # a vmm pool; needs driver 570

Each service answers with a byte of its model. A request finds its socket open at any time: the program sees that it is
readable, unparks the service, and parks it again when it was idle for a moment.
"""

from __future__ import annotations

import random
import select
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import gpushm

IDLE = 0.1  # seconds without a request


def serve(name: str) -> None:
    """A service: its socket is descriptor 0. It lets go of its model between requests, so it can be parked."""
    gpushm.may_park()
    model, listener = gpushm.open(name, timeout=60), socket.socket(fileno=0)
    model.buffer.suspend()
    print("ready", flush=True)
    while True:
        with listener.accept()[0] as client:
            model.buffer.resume(timeout=60)
            out = bytearray(1)
            model[:1].copy_to_host(out)
            client.sendall(out)
            model.buffer.suspend()


class Service:
    """A process and its socket."""

    def __init__(self, n: int, pool: str) -> None:
        array = gpushm.create(f"~/service/{n}", 1 << 20, pool=pool)
        array.copy_from_host(bytes([n]) * (1 << 20))
        array.publish("sealed")
        self.model = array
        self.socket = socket.create_server(("127.0.0.1", 0))
        words = [sys.executable, __file__, "--serve", f"~/service/{n}"]
        self.process = subprocess.Popen(words, stdin=self.socket.fileno(), stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        assert self.process.stdout.readline() == "ready\n"
        self.parked = False

    def end(self) -> None:
        self.process.kill()
        self.process.communicate()
        self.socket.close()
        self.model.close()
        gpushm.unlink(self.model.buffer.name)


def supervise(services: list[Service], over: threading.Event) -> None:
    """Parks who is idle, and brings back whom somebody asks."""
    daemon = gpushm.connect()
    while not over.is_set():
        asked = select.select([s.socket for s in services if s.parked], [], [], IDLE)[0]
        # A parked service may have accepted already: it waits in its resume.
        holders = [h for b in gpushm.ls("~/service/", holders=True) for h in b.holders]
        waiting = {h.pid for h in holders if h.parked and not h.away}
        for s in services:
            if s.socket in asked or s.process.pid in waiting:
                daemon.unpark(s.process.pid)
                s.parked = False
        for s in services:
            if not s.parked and not select.select([s.socket], [], [], 0)[0]:
                try:
                    daemon.park(s.process.pid, timeout=2)
                    s.parked = True
                    break  # and looks who is asked
                except gpushm.errors.StateError:  # a request came first
                    pass


def main(pool: str, n: int = 20, requests: int = 100) -> None:
    services, over = [Service(i, pool) for i in range(n)], threading.Event()
    supervisor = ThreadPoolExecutor(1).submit(supervise, services, over)
    while not supervisor.done() and not all(s.parked for s in services):
        time.sleep(0.01)
    for _ in range(requests):
        i = random.randrange(n)
        with socket.create_connection(services[i].socket.getsockname(), timeout=60) as c:
            assert c.recv(1) == bytes([i])
    over.set()
    supervisor.result()  # raises what ended it
    parked = sum(h.parked for s in gpushm.ls("~/service/", holders=True) for h in s.holders)
    for s in services:
        s.end()
    print(f"{requests} requests of {n} services, none failed; {parked} are parked at the end")


if __name__ == "__main__":
    if not sys.argv[1:]:
        sys.exit(__doc__)
    if sys.argv[1] == "--serve":
        serve(sys.argv[2])
    main(sys.argv[1], *map(int, sys.argv[2:]))
