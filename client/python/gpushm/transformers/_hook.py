# SPDX-License-Identifier: MIT
"""The functions of transformers that gpushm.transformers replaces while it runs, and what it needs of transformers.

PreTrainedModel._load_pretrained_model(model, state_dict, checkpoint_files, load_config) gives a model on the meta
device its weights: between the part that reads the configuration and builds the model, and the part that makes buffers,
ties weights and reads the generation's configuration. It is not public. So its parameters are checked, and another
version of it is refused.

PreTrainedModel.get_init_context() says in which contexts a model is built: one more leaves out the initialisation of
its parameters. A version without that function initialises them, which takes longer.
"""

from __future__ import annotations

import dataclasses
import errno
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from .. import _core

try:
    import transformers
    from torch.overrides import TorchFunctionMode
    from transformers import PreTrainedModel
except ImportError as e:
    raise ImportError(
        f"gpushm.transformers needs transformers 5 and PyTorch: pip install transformers torch ({e})"
    ) from e

_PARAMETERS = ["model", "state_dict", "checkpoint_files", "load_config"]
_FIELDS = {"device_map", "device_mesh", "dtype", "dtype_plan", "hf_quantizer", "weight_mapping"}

# (original, model, state_dict, checkpoint_files, load_config) -> what the original returns.
Replacement = Callable[..., Any]
_replacement: ContextVar[Replacement | None] = ContextVar("gpushm.transformers", default=None)


@contextmanager
def replaced_by(replacement: Replacement) -> Iterator[None]:
    """In this block, and in this thread, the first model that is loaded is loaded by the replacement."""
    _install()
    token = _replacement.set(replacement)
    try:
        yield
    finally:
        _replacement.reset(token)


class _NoInitialisation(TorchFunctionMode):  # type: ignore[misc]
    """Constructors of modules initialise their parameters, which takes a third of the time of an attach. On the meta
    device that can be left out. It holds for this thread, and ends when the model is built: all uses of tensors take
    longer in it.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if getattr(func, "__module__", None) == "torch.nn.init":
            tensor = kwargs.get("tensor", args[0] if args else None)
            if getattr(tensor, "is_meta", False):
                return tensor
        return func(*args, **kwargs)


def _install() -> None:
    """Once: the functions that are put there do what the originals do, except in replaced_by()."""
    original = getattr(PreTrainedModel, "_load_pretrained_model", None)
    if getattr(original, "gpushm", False):
        return
    if original is None or list(inspect.signature(original).parameters)[:4] != _PARAMETERS:
        raise unknown("PreTrainedModel._load_pretrained_model() has other parameters")

    @functools.wraps(original)
    def load(*args: Any, **kwargs: Any) -> Any:
        replacement = _replacement.get()
        if replacement is None:
            return original(*args, **kwargs)
        # What else is loaded in the same call, an adapter, is the process's own.
        _replacement.set(None)
        given = inspect.signature(original).bind(*args, **kwargs).arguments
        missing = _FIELDS - set(dir(given["load_config"]))
        if missing:
            raise unknown(f"its LoadStateDictConfig has no {', '.join(sorted(missing))}")
        return replacement(functools.partial(original, *args, **kwargs), *(given.get(name) for name in _PARAMETERS))

    load.gpushm = True  # type: ignore[attr-defined]
    PreTrainedModel._load_pretrained_model = staticmethod(load)
    contexts = PreTrainedModel.__dict__.get("get_init_context")
    if isinstance(contexts, classmethod):
        PreTrainedModel.get_init_context = classmethod(_with_mode(contexts.__func__))


def _with_mode(original: Callable[..., list[Any]]) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def get_init_context(*args: Any, **kwargs: Any) -> list[Any]:
        found = original(*args, **kwargs)
        return found if _replacement.get() is None else [*found, _NoInitialisation()]

    return get_init_context


def unknown(why: str) -> _core.NotSupported:
    """The error for a version of transformers that is not known."""
    return _core.NotSupported(
        errno.ENOTSUP,
        f"gpushm.transformers does not know transformers {transformers.__version__}: {why}. It was written for 5.0 to "
        "5.23; gpushm.torch.publish() and attach() work with every version",
    )


def loading_info(missing: set[str]) -> Any:
    """What the original says after it has loaded all but these tensors."""
    from transformers.utils.loading_report import LoadStateDictInfo

    values: dict[str, Any] = {
        "missing_keys": missing,
        "unexpected_keys": set(),
        "mismatched_keys": set(),
        "error_msgs": [],
        "conversion_errors": {},
        "skipped_pp_keys": set(),
    }
    wanted = {field.name for field in dataclasses.fields(LoadStateDictInfo)}
    if not wanted <= values.keys():
        raise unknown(f"its LoadStateDictInfo has {', '.join(sorted(wanted - values.keys()))}")
    return LoadStateDictInfo(**{name: values[name] for name in wanted})


def is_taken_as_it_is(name: str, model: Any, load_config: Any, state_dict: Mapping[str, Any]) -> bool:
    """Whether transformers takes the file's tensor of that name for the model's tensor of that name, without converting
    it.
    """
    try:
        from transformers.core_model_loading import WeightConverter, WeightRenaming, rename_source_key
    except ImportError:
        return False
    mapping = load_config.weight_mapping or []
    renamings = [entry for entry in mapping if isinstance(entry, WeightRenaming)]
    converters = [entry for entry in mapping if isinstance(entry, WeightConverter)]
    found: tuple[str, str | None] = rename_source_key(name, renamings, converters, model.base_model_prefix, state_dict)
    return found == (name, None)
