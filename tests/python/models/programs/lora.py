# SPDX-License-Identifier: MIT
"""An adapter of peft over a model of transformers."""

import sys

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

base = AutoModelForCausalLM.from_pretrained(f"{sys.argv[1]}/llama", dtype=torch.bfloat16)
model = PeftModel.from_pretrained(base, f"{sys.argv[1]}/lora").eval()
with torch.inference_mode():
    answer = model(torch.arange(3, 9)[None]).logits
