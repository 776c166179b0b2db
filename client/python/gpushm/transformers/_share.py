# SPDX-License-Identifier: MIT
"""One call of gpushm.transformers.from_pretrained(): one process loads, others wait, and each gets shared weights."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

import torch

from .. import _core, _models
from .. import torch as gpushm_torch
from ..safetensors import _header
from ..torch._tensors import dtype_of, tensors_of
from . import _fingerprint, _hook

if TYPE_CHECKING:
    from .._typing import Buffer

_TURN = 0.2  # seconds between two looks whether the process that loads still lives
_ONLY_MAX = 2000  # names that load(only=) compares with every tensor's


class Share:
    """The weights of one model under one name."""

    is_frozen: bool = True  # parameters require no gradient

    def __init__(self, name: str, timeout: float | None, replace: bool, options: dict[str, Any]) -> None:
        """replace: another model that has the name loses it. options: those of gpushm.create()."""
        self._name: str = name
        self._replace: bool = replace
        self._options: dict[str, Any] = options
        self._end: float | None = None if timeout is None else time.monotonic() + timeout
        self._gpu: int | None = None
        self._files: list[str] = []
        self._loading: Callable[[], dict[str, Any] | None] = lambda: None  # _loadable() of this model
        self._fingerprint: dict[str, Any] = {}
        self._turn: ExitStack = ExitStack()  # _models.turn() of the process that loads by transformers
        self._is_turn: bool = False
        self._loaded: bool = False

    def __enter__(self) -> Share:
        return self

    def __exit__(self, *raised: object) -> None:
        self._turn.close()

    # ---- called by transformers ----

    def load(
        self,
        original: Callable[[], Any],
        model: Any,
        state_dict: Mapping[str, Any] | None,
        checkpoint_files: list[str] | None,
        load_config: Any,
    ) -> Any:
        """Gives a model on the meta device its weights; the arguments are those of the function that it replaces."""
        _refuse_unknown(model, load_config)
        self._loaded = True
        self._gpu = _gpu_of(load_config.device_map)
        self._fingerprint = _fingerprint.of(model, load_config, checkpoint_files)
        wanted = model.state_dict(keep_vars=True)
        self._files = [os.path.abspath(file) for file in checkpoint_files or [] if state_dict is None]
        self._loading = cache(lambda: _loadable(self._files, model, load_config, wanted))
        buffer = self._attached()
        if buffer is None:
            return original()
        missing = _assign(model, buffer, wanted, self.is_frozen)
        return _hook.loading_info(missing), None

    def finish(self, model: Any) -> None:
        """Publishes what transformers has loaded, and gives the model the shared weights instead."""
        if not self._loaded:
            raise _hook.unknown(f"{type(model).__name__} was not loaded by _load_pretrained_model()")
        if not self._is_turn:
            return
        tensors = _plain_state_dict(model)
        options = self._options | {"pool": self._options["pool"] or _models.pool_of(self._gpu)}
        attrs = _fingerprint.attrs(self._fingerprint)
        try:
            # A transient buffer ends with its last user.
            with gpushm_torch.publish(self._name, tensors, attrs=attrs, replace=self._replace, **options):
                buffer = self._open()
        except _core.Exists:
            buffer = self._open_other()
        self._turn.close()
        _assign(model, buffer, tensors, self.is_frozen)
        model.tie_weights()
        if self._gpu is not None:
            torch.cuda.empty_cache()  # else PyTorch keeps from other processes what transformers has allocated

    # ---- the buffer ----

    def _attached(self) -> Buffer | None:
        """The buffer; None: transformers must load the model, and it is this process's turn."""
        found = self._found()
        if found is not None:
            return found
        self._check_pool()
        if self._loading() is not None:
            return self._load()
        self._turn.enter_context(_models.turn(self._name, self._end))
        found = self._found()
        if found is None:
            self._is_turn = True
        else:
            self._turn.close()
        return found

    def _found(self) -> Buffer | None:
        """The buffer; None: the name has no buffer yet, or this call replaces it."""
        try:
            return self._open()
        except (_core.NotFound, _core.NotPublished):
            return None
        except _core.LayoutError:
            if not self._replace:
                raise
            return None

    def _open(self) -> Buffer:
        found = _core.stat(self._name)
        if found.state == "filling":
            raise _core.NotPublished(errno.EAGAIN, f'buffer "{self._name}" is being filled')
        if not _models.is_trusted(found.uid):
            raise _core.AccessDenied(
                errno.EACCES,
                f'buffer "{self._name}" belongs to uid {found.uid}, which is neither this user nor root: GPUSHM_TRUST '
                "names the users whose weights are used",
            )
        self._check_place(f'buffer "{self._name}" is in pool "{found.pool}"', found.kind)
        buffer = _models.reopened(self._name, found.id, _models.access_to(found.kind), self._gpu)
        if buffer is None:
            raise _core.NotPublished(errno.EAGAIN, f'buffer "{self._name}" has just been replaced')
        if not self._was_loaded(buffer):
            _fingerprint.check(buffer, self._fingerprint)
        return buffer

    def _was_loaded(self, buffer: Buffer) -> bool:
        """Whether gpushm.load(), or gpushmctl load, has loaded it from these files, and the model takes them as they
        are. Then nobody has said what model it is.
        """
        files = buffer.attr("gpushm.files")
        if files is None or _fingerprint.is_in(buffer) or not self._files:
            return False
        if files != _core._load_key([os.fsencode(file) for file in self._files]).encode():
            why = "from other files, or from these before they were changed"
        elif self._loading() is None:
            why = "from these files, and transformers would convert tensors of theirs: leave dtype= out"
        else:
            return True
        raise _core.LayoutError(
            errno.EINVAL,
            f'buffer "{buffer.name}" was loaded {why}. Choose another name, or replace it (replace=True)',
        )

    def _open_other(self) -> Buffer:
        """What a process made meanwhile that did not wait for its turn: most likely with other arguments."""
        while True:
            with suppress(_core.NotPublished):
                return self._open()
            left = self._left()
            with suppress(_core.Timeout):
                _core.wait(self._name, _TURN if left is None else min(left, _TURN))
            if left == 0:
                raise _core.Timeout(errno.ETIMEDOUT, f'another process still loads "{self._name}"')

    def _check_pool(self) -> None:
        """Before a buffer is made that this process could not use."""
        for pool in _core.pools():
            if pool.name == self._options["pool"]:
                self._check_place(f'pool "{pool.name}" is of kind {pool.kind}', pool.kind)

    def _check_place(self, what: str, kind: str) -> None:
        if (kind in _core._ON_GPU) == (self._gpu is None):
            where = "the CPU, its default" if self._gpu is None else f"GPU {self._gpu}"
            raise _core.LayoutError(errno.EINVAL, f"{what}, and device_map asks for {where}")

    def _load(self) -> Buffer:
        options = self._options | (self._loading() or {})
        options["pool"] = options["pool"] or _models.pool_of(self._gpu)
        options |= {"attrs": _fingerprint.attrs(self._fingerprint), "replace": self._replace, "if_missing": True}
        while True:
            with _core.load(self._files, self._name, device=self._gpu, timeout=self._left(), **options):
                found = self._found()
            if found is not None:
                return found
            # It is of these files and of another configuration.
            options["if_missing"] = not self._replace

    def _left(self) -> float | None:
        return None if self._end is None else max(0.0, self._end - time.monotonic())


# ---- models ----


def _refuse_unknown(model: Any, load_config: Any) -> None:
    """Refuses ways of loading of which the processes can't share the result."""
    if load_config.device_mesh is not None:
        raise _core.NotSupported(
            errno.ENOTSUP, "tensor parallelism: each rank has tensors of its own; share them by gpushm.torch"
        )
    # Some constructors make a tensor on the CPU in any context: Wav2Vec2's first one is such, torch.Tensor(n).
    if not any(parameter.is_meta for parameter in model.parameters()):
        raise _core.NotSupported(
            errno.ENOTSUP, "the model was not built on the meta device (DeepSpeed's ZeRO-3?): share it by gpushm.torch"
        )


def _gpu_of(device_map: Mapping[str, Any] | None) -> int | None:
    """The ordinal of the GPU that all tensors are wanted on; None: the CPU."""
    devices = {torch.device(device) if device != "disk" else device for device in (device_map or {"": "cpu"}).values()}
    if len(devices) != 1 or "disk" in devices:
        raise _core.NotSupported(
            errno.ENOTSUP,
            f"device_map names {', '.join(sorted(map(str, devices)))}: all weights are in one buffer, on one device",
        )
    device = devices.pop()
    if device.type not in ("cpu", "cuda"):
        raise _core.NotSupported(errno.ENOTSUP, f'gpushm has no memory on device "{device}"')
    if device.type == "cpu":
        return None
    return torch.cuda.current_device() if device.index is None else int(device.index)


def _loadable(
    files: list[str] | None, model: Any, load_config: Any, wanted: Mapping[str, torch.Tensor]
) -> dict[str, Any] | None:
    """Options of load(), where the files have the model's tensors as the model needs them; None: they have not."""
    if not files or load_config.hf_quantizer is not None or load_config.dtype_plan:
        return None
    if not all(file.endswith(".safetensors") for file in files):
        return None
    for file in files:
        _header.key_of(file)  # refuses a broken one
    there = {name: tensor for file in files for name, tensor in _header.read(file).tensors.items()}
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    for name, tensor in wanted.items():
        found = there.get(name)
        if found is None and name in tied:
            continue
        if (
            found is None
            or found.shape != list(tensor.shape)
            or dtype_of(_header.NAMES.get(found.dtype, "")) != tensor.dtype
        ):
            return None
        if not _hook.is_taken_as_it_is(name, model, load_config, wanted):
            return None
    if there.keys() <= wanted.keys():
        return {}
    return {"only": [_escaped(name) for name in wanted]} if len(wanted) <= _ONLY_MAX else None


def _escaped(name: str) -> str:
    """A pattern of fnmatch(3) that has that name only."""
    return "".join(f"[{c}]" if c in "*?[" else f"\\{c}" if c == "\\" else c for c in name)


def _plain_state_dict(model: Any) -> dict[str, torch.Tensor]:
    """The state dict, if tensors of PyTorch's own classes are all that it has."""
    found: dict[str, torch.Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in found.items():
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            raise _core.NotSupported(
                errno.ENOTSUP,
                f"{name!r} is a {type(tensor).__name__}: gpushm shares elements, and not what such a tensor keeps "
                "beside them",
            )
    return {name: tensor.detach() for name, tensor in found.items()}


def _assign(model: Any, buffer: Buffer, wanted: Mapping[str, torch.Tensor], is_frozen: bool) -> set[str]:
    """Gives the model the tensors of a buffer, and returns the names of those that are not there, which are tied to
    others.
    """
    tied = getattr(model, "all_tied_weights_keys", None) or {}
    found = [name for name in wanted if name in buffer]
    missing = wanted.keys() - set(found)
    for name in sorted(missing - set(tied)):
        raise _core.LayoutError(errno.EINVAL, f'buffer "{buffer.name}" has no tensor {name!r}')
    tensors = dict(zip(found, tensors_of(buffer, found), strict=True))
    for name, tensor in tensors.items():
        if tensor.shape != wanted[name].shape:
            raise _core.LayoutError(
                errno.EINVAL,
                f"{name!r} has shape {tuple(wanted[name].shape)} here and {tuple(tensor.shape)} in buffer "
                f'"{buffer.name}"',
            )
    for path, module in model.named_modules(remove_duplicate=False):
        _fill(module, path + "." if path else "", tensors, is_frozen)
    for name in tensors:
        raise _core.NotSupported(errno.ENOTSUP, f"{name!r} is neither a parameter nor a buffer of a module")
    return missing


def _fill(module: torch.nn.Module, prefix: str, tensors: dict[str, torch.Tensor], is_frozen: bool) -> None:
    """Takes a module's own tensors out of those, and sets them. What is marked transformers does not initialise: it
    would ask each module, and each tensor of the others.
    """
    is_whole = not module._modules and not module._buffers
    for key, old in module._parameters.items():
        tensor = tensors.pop(prefix + key, None)
        if tensor is not None:
            gradient = old is not None and old.requires_grad and not is_frozen
            parameter = module._parameters[key] = torch.nn.Parameter(tensor, requires_grad=gradient)
            parameter._is_hf_initialized = True
        elif old is not None:
            is_whole = False
    for key in module._buffers:
        tensor = tensors.pop(prefix + key, None)
        if tensor is not None:
            tensor._is_hf_initialized = True
            module._buffers[key] = tensor
    if is_whole:
        module._is_hf_initialized = True
