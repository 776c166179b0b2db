# SPDX-License-Identifier: MIT
"""Models of inference engines, as they are after a load: what gpushm.vllm and gpushm.sglang share.

An engine changes a model while it loads it: tensors are fused, repacked, renamed and tied, and code notes on them what
they are. The buffer has an array with that, so that a model that was built on the meta device becomes equal to the one
that was loaded.
"""

from __future__ import annotations

import dataclasses
import errno
import hashlib
import json
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from . import _core, _models, _own_daemon
from .torch import _attach, _layout, _memory, _suspend, _tensors, publish

if TYPE_CHECKING:
    from ._typing import Buffer
    from .torch import Tensors

NOTES = "gpushm.engine"
_ROOM = 256 << 20  # bytes for blocks that PyTorch's allocator does not fill
_PAGE = 4096
_PLAIN = (bool, int, float, str)


class Note(NamedTuple):
    """What an engine has made of a tensor, besides its values."""

    is_parameter: bool
    is_persistent: bool
    alias: str | None  # the first name of the same tensor
    marks: dict[str, Any]


class Options(NamedTuple):
    """Of --model-loader-extra-config."""

    fallback: bool = True  # load from disk what can't be attached
    size: int | str | None = None  # of the buffer on a GPU; None: of the files, and some room
    timeout: float | None = None  # seconds to wait for the engine that loads

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None) -> Options:
        """ValueError: it has an option that gpushm has not."""
        unknown = sorted(set(given or {}) - set(cls._fields))
        if unknown:
            raise ValueError(f"gpushm's loader has no option {', '.join(unknown)}, but {', '.join(cls._fields)}")
        return cls(**(given or {}))


class Loader:
    """What the loaders of all engines do alike, beside a base class of the engine's, which keeps load_config."""

    load_config: Any
    from_disk: Any  # the engine's own class of loaders

    def __init__(self, load_config: Any) -> None:
        """The options are those of --model-loader-extra-config: fallback, size, timeout."""
        super().__init__(load_config)  # type: ignore[call-arg]
        self._options = Options.parse(load_config.model_loader_extra_config)

    def download_model(self, model_config: Any) -> None:
        """As the engine's own loader."""
        self._disk().download_model(model_config)

    def _disk(self) -> Any:
        plain = dataclasses.replace(self.load_config, load_format="auto", model_loader_extra_config={})
        return self.from_disk(plain)


def name_of(engine: str, key: str, device: torch.device) -> str:
    """The buffer's. A model that lies on each of two GPUs has two buffers."""
    where = "host" if device.type == "cpu" else _layout.pool_on(_ordinal(device))
    return f"{engine}/{hashlib.sha256(key.encode()).hexdigest()[:32]}/{where}"


def _ordinal(device: torch.device) -> int:
    return int(torch.cuda.current_device() if device.index is None else device.index)


def notes_of(model: torch.nn.Module) -> dict[str, Note]:
    """Of all parameters and buffers. Names of the same tensor are tied."""
    first: dict[int, str] = {}
    found = {}
    for slot in _attach.slots_of(model):
        alias = first.setdefault(id(slot.tensor), slot.name)
        marks = {key: value for key, value in vars(slot.tensor).items() if isinstance(value, _PLAIN)}
        found[slot.name] = Note(slot.is_parameter, slot.is_persistent, None if alias == slot.name else alias, marks)
    return found


def plain_attributes(model: torch.nn.Module) -> dict[str, Any]:
    """The marks that code has left on the modules and on their quantisation methods: name of an attribute, value."""
    found = {}
    for prefix, module in model.named_modules():
        for owner in (module, vars(module).get("quant_method")):
            path = [prefix] * bool(prefix) + ["quant_method"] * (owner is not module)
            for key, value in getattr(owner, "__dict__", {}).items():
                if value is None or isinstance(value, _PLAIN):
                    found[".".join([*path, key])] = value
    return found


def loose_tensors(model: torch.nn.Module) -> list[str]:
    """Tensors with values that are attributes of modules, and neither parameters nor buffers: no buffer has them."""
    return [
        f"{prefix}.{key}"
        for prefix, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, torch.Tensor) and value.numel()
    ]


def _noted(model: torch.nn.Module, flags: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """The model's tensors and the array that says what they are."""
    text = json.dumps({"notes": notes_of(model), "flags": dict(flags)}).encode()
    # Of one size for all generations, so that they have one layout.
    text = text.ljust(len(text) // _PAGE * _PAGE + 2 * _PAGE)
    tensors: dict[str, torch.Tensor] = _attach.tensors_of(model)
    return {**tensors, NOTES: torch.frombuffer(bytearray(text), dtype=torch.uint8)}


def _read(buffer: Buffer) -> tuple[dict[str, Note], dict[str, Any]]:
    if NOTES not in buffer:
        raise _core.LayoutError(errno.EINVAL, f'buffer "{buffer.name}" has no model of an engine')
    found = json.loads(_tensors.tensor_of(buffer[NOTES]).cpu().numpy().tobytes())
    return {name: Note(*note) for name, note in found["notes"].items()}, found["flags"]


def publish_model(name: str, model: torch.nn.Module, flags: Mapping[str, Any], *, replace: bool = False) -> Tensors:
    """Copies a model that an engine has loaded into a new buffer."""
    return publish(name, _noted(model, flags), replace=replace, digest=False)


def attach_model(model: torch.nn.Module, buffer: Buffer) -> dict[str, Note]:
    """Gives the model the tensors of the buffer. Its buffers become private copies, since engines write to them.

    Returns the notes. LayoutError: the model has no such modules.
    """
    notes, flags = _read(buffer)
    modules = dict(model.named_modules(remove_duplicate=False))
    missing = sorted({name.rpartition(".")[0] for name in notes} - modules.keys())
    if missing:
        raise _core.LayoutError(errno.EINVAL, f'buffer "{buffer.name}" has modules that the model lacks: {missing[:8]}')
    own = [name for name, note in notes.items() if note.alias is None]
    tensors = dict(zip(own, _tensors.tensors_of(buffer, own), strict=True))
    made: dict[str, torch.Tensor] = {}
    for name, note in notes.items():
        prefix, _, key = name.rpartition(".")
        owner = modules[prefix]
        before = owner._parameters.pop(key, None)
        if before is None:
            before = owner._buffers.pop(key, None)
        owner.__dict__.pop(key, None)
        if note.alias is None:
            made[name] = _made(tensors[name], note, before)
        tensor = made[note.alias or name]
        if note.is_parameter:
            owner.register_parameter(key, tensor)
        else:
            owner.register_buffer(key, tensor, persistent=note.is_persistent)
    for key, value in flags.items():
        path, _, last = key.rpartition(".")
        setattr(_found(model, path, buffer), last, value)
    return notes


def _found(model: torch.nn.Module, path: str, buffer: Buffer) -> Any:
    try:
        return reduce(getattr, filter(None, path.split(".")), model)
    except AttributeError as error:
        raise _core.LayoutError(errno.EINVAL, f'buffer "{buffer.name}" has marks of {path}: {error}') from error


def _made(tensor: torch.Tensor, note: Note, before: torch.Tensor | None) -> torch.Tensor:
    tensor = torch.nn.Parameter(tensor, requires_grad=False) if note.is_parameter else tensor.clone()
    # What loads its values is here; what it is, is with the one that was loaded.
    carried = {} if before is None else {k: v for k, v in vars(before).items() if not isinstance(v, _PLAIN)}
    tensor.__dict__.update(carried | note.marks)
    return tensor


def drop_leftovers(model: torch.nn.Module, notes: Mapping[str, Note], device: torch.device) -> None:
    """Drops placeholders that the load has consumed. LayoutError: something else has no values."""
    left = []
    for prefix, owner in model.named_modules():
        for where in (owner._parameters, owner._buffers):
            for key in [key for key, tensor in where.items() if tensor is not None and tensor.is_meta]:
                name = f"{prefix}.{key}" if prefix else key
                if name in notes:
                    left.append(name)
                where[key] = None
        for key, value in list(vars(owner).items()):
            if isinstance(value, torch.Tensor) and value.is_meta:
                if value.numel():
                    left.append(f"{prefix}.{key}")
                # As the place of a KV cache, which the engine makes later.
                setattr(owner, key, torch.empty_like(value, device=device))
    if left:
        raise _core.LayoutError(errno.EINVAL, f"these have no values after an attach: {left[:8]}")


def open_model(name: str, device: torch.device) -> Buffer | None:
    """Opens the buffer of that name. Returns None if there is none, or if GPUSHM_TRUST leaves its owner out."""
    try:
        if not _models.is_trusted(_core.stat(name).uid):
            return None
        return _tensors.open_buffer(name, 0, device)
    except (_core.NotFound, _core.NotPublished):
        return None


def may_publish(name: str) -> bool:
    """False: another user, whom this process does not trust, has the name."""
    try:
        return _models.is_trusted(_core.stat(name).uid)
    except _core.NotFound:
        return True


@contextmanager
def section(name: str, device: torch.device, size: int | str) -> Iterator[Any]:
    """A section of gpushm.torch.memory(); gives None where that can't be had: on the CPU, or within another pool."""
    if device.type == "cpu":
        yield None
        return
    with ExitStack() as stack:
        memory = None
        with suppress(_core.NotSupported):
            memory = stack.enter_context(_memory.memory(name, size, device=_ordinal(device)))
        yield memory


class _NotShared(Exception):
    """The model stays as it was loaded."""


def load_and_publish(
    name: str,
    device: torch.device,
    size: int | str,
    load: Callable[[], torch.nn.Module],
    flags: Callable[[torch.nn.Module], Mapping[str, Any] | None],
) -> torch.nn.Module:
    """Loads a model, on a GPU into a buffer, and gives it the published tensors. flags: None, it can't be shared.

    If the pool is full, or another engine was faster, the model stays this process's own: buffers_of() tells.
    """
    model: torch.nn.Module | None = None
    try:
        with section(name, device, size) as memory:
            model = load()
            said = flags(model)
            if said is None:
                raise _NotShared
            if memory is not None:
                published = memory.publish(_noted(model, said), digest=False)
            else:
                published = publish_model(name, model, said)
    except (_NotShared, _core.Exists, _core.PoolFull):
        return load() if model is None else model
    attach_model(model, published.buffer)
    if memory is not None:
        memory.leave_others()
    return model


def shared_model(
    name: str,
    device: torch.device,
    options: Options,
    log: Any,
    size: int | str,
    load: Callable[[], torch.nn.Module],
    attach: Callable[[Buffer], torch.nn.Module],
    flags: Callable[[torch.nn.Module], Mapping[str, Any] | None],
) -> tuple[torch.nn.Module, Buffer | None]:
    """The model of that name, and the buffer if it was attached to: one engine loads and publishes, the others attach.
    What can't be shared is loaded from disk, and the log says why.

    load: from disk. attach: builds the model around a buffer's tensors. flags: as of load_and_publish().
    """
    _own_daemon.ensure()
    end = None if options.timeout is None else time.monotonic() + options.timeout
    try:
        with _models.turn(name, end) if _models.published(name) is None else nullcontext():
            buffer = open_model(name, device)
            if buffer is not None:
                model = attach(buffer)
                log.info("gpushm: attached to %s, %d bytes", name, buffer.nbytes)
                return model, buffer
            if may_publish(name):
                model = load_and_publish(name, device, options.size or size, load, flags)
                if is_shared(model):
                    log.info("gpushm: published %s", name)
                else:
                    log.warning("gpushm: the model is this engine's alone")
                return model, None
            log.warning("gpushm: %s is another user's (GPUSHM_TRUST): loading from disk", name)
    except _core.LayoutError as error:
        if not options.fallback:
            raise
        log.warning("gpushm: %s: loading from disk", str(error))
    return load(), None


@contextmanager
def kept_apart(cache: dict[Any, Any]) -> Iterator[None]:
    """Modules that are kept for the whole process, as those of rotary embeddings, must not stay on the meta device."""
    kept = dict(cache)
    cache.clear()
    try:
        yield
    finally:
        cache.clear()
        cache.update(kept)


def is_shared(model: torch.nn.Module) -> bool:
    """Whether its tensors are in buffers."""
    try:
        return bool(_suspend.buffers_of(model))
    except ValueError:
        return False


def size_of(folder: str, ranks: int) -> int:
    """Room for the tensors of a model's files, of which each rank has a part."""
    files = [file for kind in ("*.safetensors", "*.bin", "*.pt") for file in Path(folder).glob(kind)]
    return sum(file.stat().st_size for file in files) // max(ranks, 1) * 5 // 4 + _ROOM


def follow(model: torch.nn.Module, name: str) -> bool:
    """Gives the model the tensors of the buffer that has the name now. False: it has them already. NotFound: no buffer
    has the name. NotPublished: a process still fills that one.
    """

    def attach_again(*_: object) -> None:
        attach_model(model, _tensors.open_buffer(name, 0, "current"))

    return _suspend.refreshed(model, _core.stat(name), attach_again, whole=True)
