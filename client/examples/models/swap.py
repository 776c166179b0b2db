# SPDX-License-Identifier: MIT
"""New weights under load: four workers answer while the model is replaced four times, and no request fails."""

import multiprocessing as mp
import threading
import time

import gpushm.torch
import torch


def build():
    return torch.nn.Linear(2048, 2048)


def publish(version):
    model = build().to("cuda" if torch.cuda.is_available() else "cpu")
    for p in model.parameters():
        p.data.fill_(version)
    gpushm.torch.publish("swap", model, replace=True)


def work(ready, questions, answers):
    current = gpushm.torch.attach("swap", build)

    def follow():
        nonlocal current
        for event in gpushm.watch("swap"):
            if event.what == "published":  # a request that runs now ends with the old weights
                current = gpushm.torch.attach("swap", build)

    threading.Thread(target=follow, daemon=True).start()
    ready.wait()
    while asked := questions.get():
        model = current
        y = model(torch.ones(1, 2048, device=model.weight.device) / 2048) / 2
        answers.put((y.min().item(), y.max().item(), asked))


if __name__ == "__main__":
    context = mp.get_context("spawn")
    ready, questions, answers = context.Barrier(5), context.Queue(), context.Queue()
    publish(1)
    for _ in range(4):
        context.Process(target=work, args=(ready, questions, answers), daemon=True).start()
    ready.wait()
    for version in range(1, 5):
        publish(version)
        start, slowest, stale = time.monotonic(), 0.0, 0.0
        for n in range(508):
            if n < 500:
                questions.put(time.monotonic())
            if n < 8:
                continue  # so many are asked at once
            least, most, asked = answers.get(timeout=60)
            assert least == most and most in (version - 1, version), "weights of two versions in one answer"
            slowest = max(slowest, time.monotonic() - asked)
            stale = time.monotonic() - start if most < version else stale
        print(f"version {version}: 500 answers in at most {1000 * slowest:.1f} ms, old ones for {1000 * stale:.1f} ms")
    gpushm.unlink("swap")
