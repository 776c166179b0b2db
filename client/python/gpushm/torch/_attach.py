# SPDX-License-Identifier: MIT
"""attach(): a module gets its parameters and buffers from a published buffer."""

from __future__ import annotations

import errno
import fnmatch
import sys
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import torch
from torch.nn.modules.module import register_module_parameter_registration_hook
from torch.overrides import TorchFunctionMode

from .. import _core, _libraries
from . import _fingerprint, _tensors
from ._tensors import METADATA, dtype_of, open_buffer

if TYPE_CHECKING:
    from .._typing import Array, Buffer, Device

Module = TypeVar("Module", bound="torch.nn.Module")

_TYPES = (torch.Tensor.half, torch.Tensor.bfloat16, torch.Tensor.float, torch.Tensor.double)
_MOVES = (torch.Tensor.to, torch.Tensor.cpu, torch.Tensor.cuda, *_TYPES)
_SHOWN = 8  # mismatches that a message lists


class Slot(NamedTuple):
    """A parameter or a buffer of a module: where it is set, and what is there now."""

    name: str
    owner: torch.nn.Module
    key: str
    tensor: torch.Tensor

    @property
    def is_parameter(self) -> bool:
        """Else it is a buffer."""
        return self.key in self.owner._parameters

    @property
    def is_persistent(self) -> bool:
        """Whether state_dict() has it."""
        return self.is_parameter or self.key not in self.owner._non_persistent_buffers_set


def slots_of(module: torch.nn.Module) -> Iterator[Slot]:
    """All of a module and its modules; a tensor or a module that has several names comes once for each."""
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for key, tensor in (*owner._parameters.items(), *owner._buffers.items()):
            if tensor is not None:
                yield Slot(f"{prefix}.{key}" if prefix else key, owner, key, tensor)


def tensors_of(source: torch.nn.Module | Mapping[str, torch.Tensor]) -> dict[str, Any]:
    """What publish() takes of a module or of a state dict."""
    if isinstance(source, torch.nn.Module):
        return {slot.name: slot.tensor for slot in slots_of(source)}
    if isinstance(source, Mapping):
        return dict(source)
    raise TypeError(f"a torch.nn.Module or a dict of tensors is wanted, not a {type(source).__name__}")


def attach(
    name: str,
    source: Module | Callable[[], Module],
    *,
    device: Device | str | torch.device | None = "current",
    strict: bool = True,
    writable: str | Iterable[str] = (),
    fingerprint: Mapping[str, str] | None = None,
    timeout: float | None = 0,
) -> Module:
    """Gives a module the tensors of a published buffer, without a copy, and returns it.

    source: a module, best on the meta device, or a function that makes it, which is called under
    torch.device("meta"). Its parameters and all its buffers become tensors over the buffer's memory, with
    requires_grad=False; tied weights are tied again. They keep the buffer open. Writes to them are errors, see this
    module's help; a BatchNorm in training mode writes with each call, so that the function should call eval(): a
    ReadOnlyWarning says so.

    Files of weights lack the buffers that are not persistent, as the rotary_emb.inv_freq of transformers. A function is
    called once more for them, on the CPU, with parameters that take no memory: they have the values that it gives them.

    A tensor that is a plain attribute of a module, and no buffer, is not published: a function leaves it on the meta
    device, without values. Make it a buffer, or give a module that was built as usual.

    device: the GPU that the memory is mapped for: the thread's current one, an ordinal, or None for its own; host pools
    need none. writable: a pattern of names, as "lm_head.*", or several: those become private copies that may be written
    to. Tied names get one copy; views of a tensor do not become views of its copy. timeout: seconds to wait until the
    buffer is published, None for ever.

    strict: names, shapes, dtypes and the fingerprint that publish() has left (class, configuration, PyTorch's version,
    the GPU's compute capability, and what `fingerprint` names) must be equal: LayoutError says which are not. A buffer
    that is not persistent, and has values here but not there, stays. With strict=False only shapes must be equal, and
    what is missing stays as it is. Errors: otherwise as gpushm.open().
    """
    module: Module = _built(source)
    patterns = [writable] if isinstance(writable, str) else list(writable)
    buffer = open_buffer(name, timeout, device)
    try:
        writers = _attach(module, source, buffer, strict, patterns, fingerprint)
        if writers:
            warnings.warn(_writes(writers[0], buffer), _libraries.ReadOnlyWarning, stacklevel=2)
    except BaseException:
        buffer.__exit__(*sys.exc_info())
        raise
    return module


class _StaysOnMeta(TorchFunctionMode):  # type: ignore[misc]
    """Constructors move what they have made to a device, which a tensor without memory can't be; and they convert what
    they have read from a file, of which nobody needs the values.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func not in _MOVES:
            return func(*args, **kwargs)
        tensor = args[0] if args[0].is_meta else torch.Tensor.to(args[0], "meta")
        if func in _TYPES:
            return func(tensor)
        dtype = torch._C._nn._parse_to(*args[1:], **kwargs)[1] if func is torch.Tensor.to else None
        return tensor if dtype is None else func(tensor, dtype)


def _built(source: Any) -> Any:
    if isinstance(source, torch.nn.Module):
        return source
    if not callable(source):
        raise TypeError(f"a torch.nn.Module or a function that makes one is wanted, not a {type(source).__name__}")
    with torch.device("meta"), _StaysOnMeta(), warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*which is a no-op.*")  # load_state_dict()
        module = source()
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"the function made a {type(module).__name__}, not a torch.nn.Module")
    return module


def _values_of(build: Callable[[], Any]) -> dict[str, torch.Tensor]:
    """The buffers of a module that is built as usual, except that its parameters lose their memory at once."""
    thread = threading.get_ident()

    def without_memory(owner: torch.nn.Module, key: str, parameter: Any) -> torch.nn.Parameter | None:
        lazy = isinstance(parameter, torch.nn.parameter.UninitializedTensorMixin)
        if parameter is None or parameter.is_meta or lazy or threading.get_ident() != thread:
            return None
        return torch.nn.Parameter(parameter.detach().to("meta"), requires_grad=parameter.requires_grad)

    hook = register_module_parameter_registration_hook(without_memory)
    try:
        with torch.device("cpu"):
            return dict(build().named_buffers(remove_duplicate=False))
    finally:
        hook.remove()


def _with_values(slots: list[Slot], taken: Mapping[str, str], source: Any) -> list[Slot]:
    """The slots, of which buffers that are not published have the values that the function gives them."""
    missing = {slot.name for slot in slots if slot.name not in taken and not slot.is_persistent and slot.tensor.is_meta}
    if not missing or isinstance(source, torch.nn.Module):
        return slots
    values = _values_of(source)
    for i, slot in enumerate(slots):
        if slot.name in missing & values.keys():
            slots[i] = slot._replace(tensor=values[slot.name])
            slot.owner._buffers[slot.key] = values[slot.name]
    return slots


# ---- which tensor is whose ----


def _attach(
    module: torch.nn.Module,
    source: Any,
    buffer: Buffer,
    strict: bool,
    patterns: list[str],
    named: Mapping[str, str] | None,
) -> list[Slot]:
    """Returns the slots with shared memory of what is in training mode."""
    slots = list(slots_of(module))
    arrays = {name: array for name, array in buffer.items() if name != METADATA}
    taken = _chosen(slots, arrays)
    slots = _with_values(slots, taken, source)
    for pattern in patterns:
        if not fnmatch.filter(taken, pattern):
            raise ValueError(f"writable: no tensor has a name like {pattern!r}")
    problems = _problems(slots, taken, arrays, strict)
    if strict:
        used = set(taken.values())
        problems += [f"{name!r} is in the buffer only" for name in arrays if name not in used]
        problems = _fingerprint_problems(module, buffer, named) + problems
    if problems:
        raise _core.LayoutError(errno.EINVAL, _said(buffer, problems, strict))
    copied = {taken[name] for pattern in patterns for name in fnmatch.filter(taken, pattern)}
    tensors = _made(buffer, arrays, dict.fromkeys(taken.values()), copied)
    _assign(slots, taken, tensors)
    _keep(slots, taken, buffer)
    return [slot for slot in slots if slot.owner.training and taken.get(slot.name) not in {None, *copied}]


def _writes(slot: Slot, buffer: Buffer) -> str:
    return (
        f"{slot.name!r} and others of buffer {buffer.name!r} are in training mode, in which a module may write to "
        f"them, as BatchNorm does: that {_libraries.fate(buffer.kind)[0]}. Call eval() in the function that makes the "
        "module, or attach(writable=[...]) what it changes."
    )


def _said(buffer: Buffer, problems: list[str], strict: bool) -> str:
    more = [f"and {len(problems) - _SHOWN} more"] if len(problems) > _SHOWN else []
    hint = " (strict=False compares shapes only)" if strict else ""
    return f'buffer "{buffer.name}" does not fit the module: {"; ".join(problems[:_SHOWN] + more)}{hint}'


def _chosen(slots: list[Slot], arrays: Mapping[str, Array]) -> dict[str, str]:
    """For each name of the module the buffer's name of its tensor: its own, or another one that it is tied to. Files of
    weights often have one name only of those that are tied.
    """
    tied: dict[int, str] = {}
    for slot in slots:
        if slot.name in arrays:
            tied.setdefault(id(slot.tensor), slot.name)
    found = {slot.name: slot.name if slot.name in arrays else tied.get(id(slot.tensor), "") for slot in slots}
    return {here: there for here, there in found.items() if there}


def _fingerprint_problems(module: torch.nn.Module, buffer: Buffer, named: Mapping[str, str] | None) -> list[str]:
    there = _fingerprint.read(buffer)
    device = -1 if buffer.device is None else buffer.device
    if not there and not named:
        return []
    return _fingerprint.differences(_fingerprint.of(module, device, named), there, named)


def _problems(slots: list[Slot], taken: dict[str, str], arrays: Mapping[str, Array], strict: bool) -> list[str]:
    found = []
    for slot in slots:
        name, ours = slot.name, slot.tensor
        if name not in taken:
            if strict and (slot.is_persistent or ours.is_meta):
                found.append(f"{name!r} is in the module only{_hint(slot)}")
            continue
        array = arrays[taken[name]]
        dtype = dtype_of(array.dtype_name) or array.dtype_name
        if tuple(ours.shape) != array.shape:
            found.append(f"{name!r} has shape {tuple(ours.shape)} here and {array.shape} in the buffer")
        elif strict and ours.dtype != dtype:
            found.append(f"{name!r} has dtype {ours.dtype} here and {dtype} in the buffer")
    return found


def _hint(slot: Slot) -> str:
    if slot.is_persistent:
        return ""
    return ", a buffer that files of weights do not have: give attach() the function that makes the module"


# ---- setting them ----


def _made(
    buffer: Buffer, arrays: Mapping[str, Array], names: Iterable[str], copied: set[str]
) -> dict[str, torch.Tensor]:
    """One tensor for all names of the same memory, layout and dtype; a copy, where one of the names is to be copied."""
    tied: dict[tuple[Any, ...], list[str]] = {}
    for name in names:
        array = arrays[name]
        # Arrays without elements are all at the same place.
        place = array.offset if array.size else name
        tied.setdefault((place, array.dtype_name, array.shape, array.strides), []).append(name)
    found = {}
    made = _tensors.tensors_of(buffer, [group[0] for group in tied.values()])
    for group, tensor in zip(tied.values(), made, strict=True):
        found.update(dict.fromkeys(group, tensor.clone() if copied.intersection(group) else tensor))
    return found


def _assign(slots: list[Slot], taken: dict[str, str], tensors: dict[str, torch.Tensor]) -> None:
    parameters: dict[int, torch.nn.Parameter] = {}
    for slot in slots:
        tensor = tensors.get(taken.get(slot.name, ""))
        if tensor is None:
            continue
        if not slot.is_parameter:
            slot.owner._buffers[slot.key] = tensor
            continue
        parameter = parameters.get(id(tensor))
        if parameter is None:
            parameter = parameters[id(tensor)] = torch.nn.Parameter(tensor, requires_grad=False)
            # Libraries note on a parameter how to load it, and the like.
            parameter.__dict__.update(slot.tensor.__dict__)
        slot.owner._parameters[slot.key] = parameter


def _keep(slots: list[Slot], taken: dict[str, str], buffer: Buffer) -> None:
    """Moves the module's own buffers, which stay, to the device that the others are on."""
    if buffer.device is None:
        return
    for slot in slots:
        if slot.name not in taken and not slot.is_parameter and not slot.tensor.is_meta:
            slot.owner._buffers[slot.key] = slot.tensor.to(f"cuda:{buffer.device}")
