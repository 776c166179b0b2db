# SPDX-License-Identifier: MIT
"""Tensors of safe_open(), converted one by one."""

import sys

import torch
from safetensors import safe_open

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)])
with safe_open(f"{sys.argv[1]}/linear.safetensors", framework="pt") as f:
    model.load_state_dict({name: f.get_tensor(name).to(torch.bfloat16) for name in f.offset_keys()}, assign=True)
answer = model.eval()(torch.ones(1, 1024, dtype=torch.bfloat16)).detach()
