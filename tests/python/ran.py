# SPDX-License-Identifier: MIT
"""What a run of pytest had: lines for tests/run.sh, from which tests/compatibility.py makes a part of gpushm(7)."""

from __future__ import annotations

import platform
import sys
from importlib.metadata import PackageNotFoundError, version

# Product: its module, and the names of packages that have it.
PRODUCTS = {
    "NumPy": ("numpy", ["numpy"]),
    "ml_dtypes": ("ml_dtypes", ["ml_dtypes"]),
    "safetensors": ("safetensors", ["safetensors"]),
    "PyTorch": ("torch", ["torch"]),
    "transformers": ("transformers", ["transformers"]),
    "JAX": ("jax", ["jax"]),
    "CuPy": ("cupy", ["cupy-cuda13x", "cupy-cuda12x", "cupy"]),
    "numba-cuda": ("numba.cuda", ["numba-cuda"]),
    "cuda.core": ("cuda.core", ["cuda-core"]),
    "Ray": ("ray", ["ray"]),
    "Dask": ("distributed", ["distributed"]),
    "vLLM": ("vllm", ["vllm"]),
    "SGLang": ("sglang", ["sglang"]),
}


def lines() -> list[str]:
    """One for Python, and one for each product that a test has imported: an installed one proves nothing."""
    found = [f"ran: Python {platform.python_version()}"]
    for product, (module, packages) in PRODUCTS.items():
        if module not in sys.modules:
            continue
        for package in packages:
            try:
                found.append(f"ran: {product} {version(package)}")
                break
            except PackageNotFoundError:
                continue
    return found
