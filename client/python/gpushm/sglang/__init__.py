# SPDX-License-Identifier: MIT
"""SGLang with weights that outlive it: a loader. client/python/ENGINES.md tells how to use it.

    sglang serve MODEL --load-format private

SGLang finds register() by the entry point sglang.srt.plugins. `import gpushm` does not import this module.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from typing import Any

__all__ = ["register"]

_PLACE = "sglang.private.private_model_loader"


def register() -> None:
    """Puts this module where SGLang looks for the loader of the load format "private".

    SGLang calls it in each of its processes. Where an installation has such a module of its own, that one stays.
    """
    if _PLACE not in sys.modules and find_spec("sglang.private") is None:
        sys.modules[_PLACE] = sys.modules[__name__]


def __getattr__(name: str) -> Any:
    # Not before a model is loaded: SGLang's processes that load none must not import its loaders.
    if name != "PrivateModelLoader":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ._loader import Loader

    return Loader
