# SPDX-License-Identifier: MIT
"""A model of diffusers."""

import sys

import torch
from diffusers import UNet2DModel

model = UNet2DModel.from_pretrained(f"{sys.argv[1]}/unet", torch_dtype=torch.bfloat16)
with torch.inference_mode():
    answer = model(torch.linspace(-1, 1, 3 * 16 * 16).reshape(1, 3, 16, 16).bfloat16(), 3).sample
