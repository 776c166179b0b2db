# SPDX-License-Identifier: MIT
"""A model of Triton's Python backend: its instances are processes, and share one copy of the weights.

Copy this folder into a model repository of Triton; its Python needs gpushm and PyTorch.
"""

import gpushm.torch
import numpy as np
import torch
import triton_python_backend_utils as pb_utils


def build():
    torch.manual_seed(0)  # a real model loads a file here
    return torch.nn.Sequential(torch.nn.Linear(256, 1024), torch.nn.ReLU(), torch.nn.Linear(1024, 4)).eval()


class TritonPythonModel:
    """Triton makes one in each process of the instance group."""

    def initialize(self, args):
        self.model = gpushm.torch.share(f"triton/{args['model_name']}/{args['model_version']}", build)

    def execute(self, requests):
        found = []
        for request in requests:
            x = torch.from_numpy(pb_utils.get_input_tensor_by_name(request, "X").as_numpy().copy())
            with torch.inference_mode():
                best = self.model(x).argmax(-1, keepdim=True).numpy().astype(np.int64)
            found.append(pb_utils.InferenceResponse(output_tensors=[pb_utils.Tensor("CLASS", best)]))
        return found
