# SPDX-License-Identifier: MIT
"""An ASGI application: its workers answer with one model, which is in memory once.

    uvicorn --workers 4 --factory asgi:app           # in this folder; then: curl 'http://127.0.0.1:8000/?1'

python asgi.py  asks one worker, without a server.
"""

import asyncio
import json
import os

import gpushm.torch
import torch


def build():
    torch.manual_seed(0)
    return torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(16)]).eval()


def app():
    """Each worker makes one."""
    model = gpushm.torch.share("asgi", build)

    async def answer(scope, receive, send):
        assert scope["type"] == "http"  # an application without a lifespan
        with torch.inference_mode():
            mean = model(torch.full((1, 512), float(scope["query_string"]))).mean().item()
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
        await send({"type": "http.response.body", "body": json.dumps([os.getpid(), mean]).encode()})

    return answer


if __name__ == "__main__":
    said = []

    async def send(message):
        said.append(message)

    asyncio.run(app()({"type": "http", "query_string": b"1"}, None, send))
    print(f"status {said[0]['status']}: {said[1]['body'].decode()}")
    gpushm.unlink("asgi")
