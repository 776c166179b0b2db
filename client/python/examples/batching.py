# SPDX-License-Identifier: MIT
"""Dynamic batching: requests of many clients are gathered into batches, which a pool of workers shares.

    python batching.py [CLIENTS]

The front end has one stream of batches: what has arrived while the last one was sent is the next one, so batches grow
with the load. Each batch goes to one of the workers ("share"), and a worker answers in a stream of its own. In the
middle one worker is killed: what it had in its hands is given to another one, and no client notices.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import sys
from typing import Any

import gpushm
import numpy as np

BATCHES, ANSWERS = "~/batching/batches", "~/batching/answers/{}"
WORKERS, ROWS, INPUTS, OUTPUTS = 3, 32, 64, 10
WEIGHTS = np.random.default_rng(0).standard_normal((INPUTS, OUTPUTS)).astype("float32")

Row = np.ndarray[Any, np.dtype[np.float32]]


def worker(number: int) -> None:
    """Takes batches until the front end has closed its stream."""
    with gpushm.stream(ANSWERS.format(number), {"y": ((ROWS, OUTPUTS), "float32")}, pool="host") as answers:
        for batch in gpushm.follow(BATCHES, "share", timeout=20):
            x = batch["x"].numpy()
            with answers.frame() as f:
                f.resize("y", (len(x), OUTPUTS))[...] = x @ WEIGHTS
                f.meta = {"batch": batch.seq}


class FrontEnd:
    """ask() is what a server calls for each request."""

    def __init__(self) -> None:
        """The stream of batches. They wait until a worker takes them."""
        self.arrays = {"x": ((ROWS, INPUTS), "float32")}
        self.batches = gpushm.stream(BATCHES, self.arrays, slots=8, pool="host", keep_queue=True)
        self.requests: asyncio.Queue[tuple[Row, asyncio.Future[Row]]] = asyncio.Queue()
        self.sent: dict[int, list[asyncio.Future[Row]]] = {}
        self.sizes: list[int] = []
        self.ready = asyncio.Semaphore(0)

    async def ask(self, x: Row) -> Row:
        """The answer to one request."""
        answer: asyncio.Future[Row] = asyncio.get_running_loop().create_future()
        self.requests.put_nowait((x, answer))
        return await answer

    async def send(self) -> None:
        """Makes batches of what has arrived."""
        while True:
            rows = [await self.requests.get()]
            with await self.batches.frame_async() as f:
                # More may have arrived while all slots were full.
                while len(rows) < ROWS and not self.requests.empty():
                    rows.append(self.requests.get_nowait())
                f.resize("x", (len(rows), INPUTS))[...] = np.stack([x for x, _ in rows])
                self.sent[f.seq] = [answer for _, answer in rows]
            self.sizes.append(len(rows))

    async def receive(self, number: int) -> None:
        """Hands one worker's answers to the clients."""
        async with gpushm.follow(ANSWERS.format(number), "every") as answers:
            self.ready.release()
            try:
                async for f in answers:
                    # A batch that a worker had answered before it died is answered again.
                    for answer, y in zip(self.sent.pop(f.meta["batch"], ()), f["y"].numpy(), strict=False):
                        answer.set_result(y.copy())
            except gpushm.errors.ProducerDied:
                print(f"worker {number} died")


async def client(front: FrontEnd, seed: int) -> int:
    """Asks some questions, one after the other, and checks the answers."""
    random = np.random.default_rng(seed)
    for _ in range(10):
        x = random.standard_normal(INPUTS).astype("float32")
        np.testing.assert_allclose(await front.ask(x), x @ WEIGHTS, rtol=1e-3, atol=1e-3)
    return 10


async def serve(clients: int, workers: list[Any]) -> None:
    """Serves all clients, and kills a worker when half of them are done."""
    front = FrontEnd()
    tasks = [asyncio.create_task(front.receive(i)) for i in range(WORKERS)]
    for _ in range(WORKERS):
        await front.ready.acquire()
    tasks.append(asyncio.create_task(front.send()))
    answered = sum(await asyncio.gather(*(client(front, i) for i in range(clients // 2))))
    workers[0].kill()
    answered += sum(await asyncio.gather(*(client(front, i) for i in range(clients // 2, clients))))
    await tasks[0]  # its death may be found after the last answer
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    front.batches.close()
    print(f"{answered} answers in {len(front.sizes)} batches of up to {max(front.sizes)}")


def main() -> None:
    """Runs the workers, and the front end in this process."""
    workers = [multiprocessing.get_context("spawn").Process(target=worker, args=(i,)) for i in range(WORKERS)]
    for process in workers:
        process.start()
    asyncio.run(serve(int(sys.argv[1]) if sys.argv[1:] else 100, workers))
    for process in workers:
        process.join()
    sys.exit(any(process.exitcode for process in workers[1:]))


if __name__ == "__main__":
    main()
