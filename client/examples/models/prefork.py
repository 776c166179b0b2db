# SPDX-License-Identifier: MIT
"""Eight workers of a prefork server answer with one model, which is in memory once.

python prefork.py  forks eight workers itself, asks them 200 times, and stops them. With gunicorn, in this folder:

    gunicorn --workers 8 'prefork:app()'             # then: curl 'http://127.0.0.1:8000/?1'
    gunicorn --workers 8 --preload 'prefork:app()'   # on the CPU: CUDA does not survive a fork
"""

import json
import multiprocessing as mp
import os
import socket

import gpushm.torch
import torch


def build():
    made = torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(16)]).eval()
    return made.to("cuda" if torch.cuda.is_available() else "cpu")


def app():
    """A WSGI application. One worker builds the model, the others attach."""
    model = gpushm.torch.share("prefork", build)

    def answer(environ, start_response):
        x = torch.full((1, 512), float(environ["QUERY_STRING"]), device=model[0].weight.device)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [json.dumps([os.getpid(), model(x).mean().item()]).encode()]

    return answer


def serve(listener):  # the least of a server: a question is a number
    answer = app()
    while True:
        client, _ = listener.accept()
        with client:
            client.sendall(b"".join(answer({"QUERY_STRING": client.recv(64).decode()}, lambda *head: None)))


if __name__ == "__main__":
    fork, listener, answers = mp.get_context("fork"), socket.create_server(("127.0.0.1", 0)), []
    for _ in range(8):
        fork.Process(target=serve, args=(listener,), daemon=True).start()  # ends before this process does
    for _ in range(200):
        with socket.create_connection(listener.getsockname(), timeout=120) as asked:
            asked.sendall(b"1")
            answers.append(json.loads(asked.makefile().read()))
    info = gpushm.stat("prefork")
    print(f"{len({pid for pid, _ in answers})} workers answered, {info.readers} share {info.nbytes >> 20} MiB")
    assert len({mean for _, mean in answers}) == 1
    gpushm.unlink("prefork")
