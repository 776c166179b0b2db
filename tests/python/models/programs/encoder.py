# SPDX-License-Identifier: MIT
"""An encoder of transformers, moved to another dtype after it was loaded."""

import sys

import torch
from transformers import AutoModel

model = AutoModel.from_pretrained(f"{sys.argv[1]}/bert", dtype="auto").half()
with torch.inference_mode():
    answer = model(torch.arange(3, 9)[None]).last_hidden_state
