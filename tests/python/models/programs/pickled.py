# SPDX-License-Identifier: MIT
"""A state dict that torch.load() maps, in a module that takes another dtype."""

import sys

import torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)])
model.load_state_dict(torch.load(f"{sys.argv[1]}/linear.pt", mmap=True))
model = model.to(torch.bfloat16).eval()
answer = model(torch.ones(1, 1024, dtype=torch.bfloat16)).detach()
