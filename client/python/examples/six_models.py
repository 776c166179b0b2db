# SPDX-License-Identifier: MIT
"""A web service with six models in room for two: prefork workers share them, and let go of what is not asked for.

    python six_models.py POOL TWINS [REQUESTS]      # two pools of the host's memory: of 2 MiB, and for all six

Each worker has all six models open, and needs none of them in memory. A request brings its model back and keeps it for
as long as it computes; memory that others need goes when no request computes with it. In the middle a worker is killed,
and its clients ask another one. A model takes 1 MiB.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import sys
import threading
import traceback
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import ClassVar

import gpushm
import numpy as np

MODELS, WORKERS, CLIENTS, SIZE = 6, 4, 8, 512


class Answer(BaseHTTPRequestHandler):
    """GET /3?5 asks the fourth model about 5."""

    models: ClassVar[list[gpushm.Buffer]] = []

    def do_GET(self) -> None:
        """Computes."""
        n, x = map(int, self.path[1:].split("?"))
        with gpushm.use(self.models[n]):
            y = self.models[n]["w"].numpy() @ np.full(SIZE, x, "f4")
        self.send_response_only(200)
        self.end_headers()
        self.wfile.write(json.dumps([os.getpid(), float(y[0]), float(y[-1])]).encode())


def work(listener: socket.socket) -> None:
    """In a child, which opens the models itself. An open brings a model back, which is not needed yet."""
    try:
        for n in range(MODELS):
            Answer.models.append(gpushm.open_many(f"~/six/{n}", timeout=60))
            Answer.models[n].suspend()
            gpushm.yields(Answer.models[n], after=0.05)
        server = HTTPServer(("", 0), Answer, bind_and_activate=False)
        server.socket.close()
        server.socket = listener
        server.serve_forever()
    finally:
        traceback.print_exc()
        os._exit(1)


def ask(port: int, n: int, x: int) -> int:
    """Asks another worker if one dies, which breaks its connections. Returns the pid of the one that answered."""
    while True:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        try:
            connection.request("GET", f"/{n}?{x}")
            pid, first, last = json.load(connection.getresponse())
        except (ConnectionError, http.client.HTTPException, json.JSONDecodeError):  # it may die in its reply
            continue
        finally:
            connection.close()
        assert first == last == x * (n + 1), (n, x, first, last)
        return int(pid)


def client(port: int, requests: int, answered: list[int], seed: int) -> None:
    """Asks for popular models often: by Zipf's law."""
    draw = random.Random(seed)
    for n in draw.choices(range(MODELS), [1 / (n + 1) for n in range(MODELS)], k=requests):
        answered.append(ask(port, n, draw.randrange(100)))


def main() -> None:
    """Forks before it starts threads."""
    pool, twins, requests = sys.argv[1], sys.argv[2], int(sys.argv[3]) if sys.argv[3:] else 400
    for n in range(MODELS):  # each multiplies by n + 1; with its twin it may lose its memory
        with gpushm.create_many(f"~/six/{n}", {"w": np.eye(SIZE, dtype="f4") * (n + 1)}, pool=pool) as model:
            model.publish()
        gpushm.make_twin(f"~/six/{n}", twins)
    listener = socket.create_server(("127.0.0.1", 0))
    workers = []
    for _ in range(WORKERS):
        workers.append(os.fork())
        if workers[-1] == 0:
            work(listener)
    answered: list[int] = []
    each = listener.getsockname()[1], requests // CLIENTS, answered
    clients = [threading.Thread(target=client, args=(*each, seed)) for seed in range(CLIENTS)]
    for c in clients:
        c.start()
    while len(answered) < requests // 2:
        clients[0].join(0.01)
    os.kill(workers[0], signal.SIGKILL)
    for c in clients:
        c.join()
    for pid in workers:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    print(f"{len(answered)} answers of {len(set(answered))} workers, one of them killed")
    for n in range(MODELS):
        gpushm.unlink(f"~/six/{n}")
    listener.close()


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    main()
