# SPDX-License-Identifier: MIT
"""A pipeline of transformers."""

import sys

import torch
from transformers import pipeline

pipe = pipeline("feature-extraction", model=f"{sys.argv[1]}/bert", dtype=torch.bfloat16, device="cpu")
model = pipe.model
answer = torch.tensor(pipe("w5 w7 w11"))
