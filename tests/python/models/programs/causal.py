# SPDX-License-Identifier: MIT
"""A causal model of transformers, from a file of float32."""

import sys

import torch
from transformers import AutoModelForCausalLM

model = AutoModelForCausalLM.from_pretrained(f"{sys.argv[1]}/llama", dtype=torch.bfloat16)
answer = model.generate(torch.arange(3, 9)[None], max_new_tokens=6, do_sample=False)
