# SPDX-License-Identifier: MIT
"""Python imports this when it starts, in programs of `python -m gpushm.share`, which puts this folder into PYTHONPATH.

Nothing is imported here that the program would not import: the hooks follow with the first library that loads weights.
"""

import importlib
import os
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

_WATCHED = {
    "accelerate.utils.modeling": "into_accelerate",
    "diffusers.models.modeling_utils": "into_diffusers",
    "safetensors": "into_safetensors",
    "torch": "into_torch",
    "transformers.modeling_utils": "into_transformers",
}


class _Finder:
    """Finds what the others find, and puts the hooks into it after it has been executed."""

    @classmethod
    def find_spec(cls, name: str, *where: object) -> ModuleSpec | None:
        if name not in _WATCHED:
            return None
        others = (finder for finder in sys.meta_path if finder is not cls)
        found = (finder.find_spec(name, *where) for finder in others)  # type: ignore[arg-type]
        spec = next(filter(None, found), None)
        if spec and spec.loader:
            execute = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                execute(module)
                _put_into(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _put_into(module: ModuleType) -> None:
    try:
        hooks = importlib.import_module("gpushm.share._hooks")
    except ImportError as error:
        print(f"gpushm.share: {sys.executable} shares no weights: {error}", file=sys.stderr)
        sys.meta_path.remove(_Finder)
        return
    getattr(hooks, _WATCHED[module.__name__])(module)


def _import_the_other() -> None:
    """The sitecustomize that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path) != here]
    this = sys.modules.pop(__name__)
    try:
        importlib.import_module(__name__)
    except ImportError as error:
        if error.name != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, this)


sys.meta_path.insert(0, _Finder)
_import_the_other()
