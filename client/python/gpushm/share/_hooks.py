# SPDX-License-Identifier: MIT
"""What is replaced in libraries that load weights: sitecustomize calls into_*() when the program has imported them."""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import _core

if TYPE_CHECKING:
    from ..transformers._share import Share


class _Thread(threading.local):
    is_in: bool = False  # in a call that loads weights: what it calls is a part of it
    is_plain: bool = False  # weights are converted here, and files read as usual


_thread = _Thread()
# A file has been read whose tensors are not in a module yet.
_is_read = threading.Event()


def into_safetensors(module: Any) -> None:
    original = module.safe_open

    @functools.wraps(original, updated=())
    def opened(filename: Any, framework: str, *args: Any, **kwargs: Any) -> Any:
        _is_read.set()
        if _thread.is_plain or framework not in ("pt", "torch", "pytorch", "np", "numpy", "jax", "flax"):
            return original(filename, framework, *args, **kwargs)
        from ..safetensors import _copies, _file, safe_open

        _file.original = original
        _copies.INSTEAD.clear()  # the functions that it names share by these hooks
        return safe_open(filename, framework, *args, **kwargs)

    module.safe_open = opened


def into_torch(module: Any) -> None:
    kind, load = module.nn.Module, module.load

    @functools.wraps(load)
    def load_and_note(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("mmap"):
            _is_read.set()
        return load(*args, **kwargs)

    module.load = load_and_note
    kind.load_state_dict = _sharing(kind.load_state_dict, lambda module: _is_read.is_set())
    kind._apply = _sharing(kind._apply, _has_shared)


def into_accelerate(module: Any) -> None:
    module.load_checkpoint_in_model = _sharing(module.load_checkpoint_in_model)


def into_diffusers(module: Any) -> None:
    original = module.ModelMixin.from_pretrained.__func__
    module.ModelMixin.from_pretrained = classmethod(_sharing(original, of_result=True))


def into_transformers(module: Any) -> None:
    original = module.PreTrainedModel.from_pretrained.__func__

    @functools.wraps(original)
    def from_pretrained(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("key_mapping") or kwargs.get("state_dict") is not None:
            return original(*args, **kwargs)
        from ..transformers import _hook

        with _load() as load, _hook.replaced_by(load.load):
            made = original(*args, **kwargs)
            load.finish(made[0] if isinstance(made, tuple) else made)
        return made

    module.PreTrainedModel.from_pretrained = classmethod(_sharing(from_pretrained, of_result=True))


# ---- modules that are loaded ----


def _sharing(
    original: Callable[..., Any], is_wanted: Callable[[Any], bool] = lambda module: True, *, of_result: bool = False
) -> Callable[..., Any]:
    """The function, after which a module shares its weights: the first argument, or the result."""

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        module = args[0] if args else kwargs.get("model")
        if _thread.is_in or not is_wanted(module):
            return original(*args, **kwargs)
        _thread.is_in = True
        try:
            made = original(*args, **kwargs)
        finally:
            _thread.is_in = False
        if of_result:
            module = made[0] if isinstance(made, tuple) else made
        from . import _modules

        _is_read.clear()
        _modules.share(module)
        return made

    return call


def _has_shared(module: Any) -> bool:
    from . import _modules

    return _modules.has_shared(module)


# ---- models of transformers ----


def _load() -> Share:
    """One call of from_pretrained(), by gpushm.transformers. What that can't share is loaded as usual."""
    from ..transformers import _fingerprint
    from ..transformers._share import Share
    from . import _modules

    class Load(Share):
        is_frozen = False

        def load(self, original: Callable[[], Any], model: Any, *given: Any) -> Any:
            def converted() -> Any:
                _thread.is_plain = True
                try:
                    return original()
                finally:
                    _thread.is_plain = False

            _, files, load_config = given
            said = _fingerprint.attrs(_fingerprint.of(model, load_config, files))
            key = hashlib.sha256(repr(said).encode()).hexdigest()[:16]
            self._name = f"{_modules.prefix()}/{type(model).__name__}-{key}"
            try:
                return super().load(converted, model, *given)
            except _core.Error:
                self._is_turn = False
                self._turn.close()
                return original()

        def finish(self, model: Any) -> None:
            if self._is_turn:
                with suppress(_core.Error, TypeError):  # _modules.share() says what can't be shared
                    super().finish(model)

    return Load("", None, False, _modules.options() | {"wait": 0})
