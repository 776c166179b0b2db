# SPDX-License-Identifier: MIT
"""Two instances of a model behind an inference server, as Triton's Python backend has them: one copy of the weights.

The server starts a process for each instance of TritonPythonModel. The first one loads the weights, the others attach.
python backend.py  plays the server.
"""

import json
import multiprocessing as mp

import gpushm.torch
import torch


def build():
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 4)).eval()


def load():
    torch.manual_seed(0)  # a real backend reads a file here
    return build().to("cuda" if torch.cuda.is_available() else "cpu")


class TritonPythonModel:
    def initialize(self, args):
        name = f"backend/{args['model_name']}/{args['model_version']}"
        try:
            gpushm.torch.publish(name, load())
        except gpushm.errors.Exists:  # another instance has it, or is loading it
            pass
        self.model = gpushm.torch.attach(name, build, timeout=60)

    def execute(self, requests):
        device = self.model[0].weight.device
        return [self.model(torch.tensor(request, device=device)).argmax(-1).tolist() for request in requests]


def instance(args, pipe):
    model = TritonPythonModel()
    model.initialize(args)
    for requests in iter(pipe.recv, None):
        pipe.send(model.execute(requests))


if __name__ == "__main__":
    args = {"model_config": json.dumps({"max_batch_size": 8}), "model_name": "small", "model_version": "1"}
    pipes = []
    for _ in range(2):
        ours, theirs = mp.Pipe()
        mp.get_context("spawn").Process(target=instance, args=(args, theirs), daemon=True).start()
        pipes.append(ours)
    for pipe in pipes:
        pipe.send([[[float(i == j) for j in range(256)] for i in range(8)]])
    answers = [pipe.recv() for pipe in pipes]
    assert answers[0] == answers[1]
    info = gpushm.stat("backend/small/1")
    print(f"{info.readers} instances give the answer {answers[0][0]} with {info.nbytes} bytes")
    gpushm.unlink("backend/small/1")
