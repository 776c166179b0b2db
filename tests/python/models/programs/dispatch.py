# SPDX-License-Identifier: MIT
"""A checkpoint that accelerate loads and dispatches."""

import sys

import torch
from accelerate import init_empty_weights, load_checkpoint_and_dispatch
from transformers import AutoConfig, AutoModelForCausalLM

with init_empty_weights():
    model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(f"{sys.argv[1]}/llama"))
model = load_checkpoint_and_dispatch(model, f"{sys.argv[1]}/llama", device_map={"": "cpu"}, dtype=torch.bfloat16)
with torch.inference_mode():
    answer = model.eval()(torch.arange(3, 9)[None]).logits
