# SPDX-License-Identifier: MIT
"""A Dask cluster where each machine has one copy of a model, and every worker uses the copy of its machine.

    python dask_fleet.py tcp://scheduler:8786 source.example.com/digits 40      # or HOST:PORT/NAME, or a URL

Dask decides where tasks run; gpushm has no scheduler of its own. One worker of each machine pulls the model into the
memory of the machine's daemon. Then each task opens it by its name: neither the scheduler nor a task carries weights.
The last word says how many workers there will be, without it 1: the program begins when they have registered.
"""

from __future__ import annotations

import os
import sys

import gpushm
import numpy as np
from distributed import Client, get_worker

NAME = os.environ.get("FLEET_NAME", "fleet/digits")


def have(source: str, name: str) -> int:
    """Pulls the model, if this machine does not have it. Returns its number there."""
    with gpushm.pull(source, name, if_missing=True) as model:
        return model.id


def classify(images: np.ndarray, name: str) -> tuple[str, np.ndarray]:
    """The worker's host, and the answers. An open takes microseconds: it maps what is there."""
    with gpushm.open_many(name) as model:
        w1, b1, w2, b2 = (np.from_dlpack(model[k]) for k in ("w1", "b1", "w2", "b2"))
        answers = (np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(1)
        del w1, b1, w2, b2
    return get_worker().address, answers


def main(scheduler: str, source: str, workers_at_least: str = "1") -> None:
    with Client(scheduler, timeout=60) as client:
        client.wait_for_workers(int(workers_at_least), timeout=300)
        workers = client.scheduler_info(n_workers=-1)["workers"]
        first = {worker["host"]: address for address, worker in workers.items()}
        for address, buffer in client.run(have, source, NAME, workers=list(first.values())).items():
            print(f"{address}: has {NAME} as buffer {buffer}")

        images = np.random.default_rng(1).integers(0, 17, (600, 64)).astype("f4")
        parts = np.array_split(images, 4 * len(workers))
        spread = [list(workers)[i % len(workers)] for i in range(len(parts))]
        tasks = [client.submit(classify, p, NAME, workers=[w]) for p, w in zip(parts, spread, strict=True)]
        found = client.gather(tasks)
        digits = np.concatenate([answers for _, answers in found])
        print(f"{len({worker for worker, _ in found})} workers on {len(first)} machines, {len(digits)} answers")


if __name__ == "__main__":
    if not sys.argv[2:]:
        sys.exit(__doc__)
    main(*sys.argv[1:4])
