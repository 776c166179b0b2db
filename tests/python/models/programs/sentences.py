# SPDX-License-Identifier: MIT
"""Embeddings of sentence-transformers."""

import sys

import torch
from sentence_transformers import SentenceTransformer

model = SentenceTransformer(f"{sys.argv[1]}/bert", device="cpu", model_kwargs={"dtype": torch.bfloat16})
answer = model.encode(["w5 w7 w11", "w4"], convert_to_tensor=True)
