# SPDX-License-Identifier: MIT
"""One process trains, four follow: each generation of the weights is published in one step, as in reinforcement
learning, where the followers play with the newest policy.

python follow.py
"""

import multiprocessing as mp

import gpushm.torch
import torch

GENERATIONS, FOLLOWERS = 5, 4


def build():
    return torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))


def sample(n, device):
    x = torch.randn(n, 8, device=device)
    return x, x.sum(-1, keepdim=True).sin()


def follow(scores):
    with gpushm.watch("policy") as watch:
        for event in watch:
            if event.what != "published":
                continue
            with gpushm.torch.open("policy") as tensors:
                generation = int(tensors.buffer.attr("generation"))
            model = gpushm.torch.attach("policy", build)
            x, y = sample(2000, model[0].weight.device)
            scores.put((generation, torch.nn.functional.mse_loss(model(x), y).item()))
            if generation == GENERATIONS:
                return


if __name__ == "__main__":
    context, device = mp.get_context("spawn"), "cuda" if torch.cuda.is_available() else "cpu"
    scores = context.Queue()
    followers = [context.Process(target=follow, args=(scores,), daemon=True) for _ in range(FOLLOWERS)]
    for follower in followers:
        follower.start()
    model = build().to(device)
    optimizer = torch.optim.Adam(model.parameters(), 0.01)
    for generation in range(1, GENERATIONS + 1):
        gpushm.torch.publish("policy", model, replace=True, attrs={"generation": str(generation)})
        found = [scores.get(timeout=120) for _ in range(FOLLOWERS)]
        assert {g for g, _ in found} == {generation}
        print(f"generation {generation}: {FOLLOWERS} followers, loss {sum(loss for _, loss in found) / FOLLOWERS:.3f}")
        for _ in range(100):  # the followers' memory stays as it was published
            x, y = sample(256, device)
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    for follower in followers:
        follower.join()
    gpushm.unlink("policy")
