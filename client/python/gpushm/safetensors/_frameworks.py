# SPDX-License-Identifier: MIT
"""Arrays as tensors of a framework, without a copy; names of frameworks and devices, as safetensors has them."""

from __future__ import annotations

import importlib.util
import re
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from .. import _libraries
from ._header import SafetensorError

if TYPE_CHECKING:
    from .._typing import Array, Buffer

Framework: TypeAlias = Literal["pt", "np", "jax"]

_NAMES: dict[str, Framework] = {
    "pt": "pt",
    "torch": "pt",
    "pytorch": "pt",
    "np": "np",
    "numpy": "np",
    "jax": "jax",
    "flax": "jax",
}
_OTHERS = ("tf", "tensorflow", "mlx", "paddle")


def framework_of(name: str) -> Framework:
    """The framework of that name. SafetensorError: the name is not known, or it can't share memory with gpushm."""
    if name in _OTHERS:
        raise SafetensorError(
            f"framework {name} can't use gpushm's memory without a copy: open the file with safetensors itself, or for "
            'framework "np"'
        )
    if name not in _NAMES:
        raise SafetensorError(f"framework {name} is invalid")
    return _NAMES[name]


def default_framework() -> Framework:
    """PyTorch where it is installed, else NumPy."""
    return "pt" if importlib.util.find_spec("torch") else "np"


class Place:
    """A device as safetensors names it: `gpu` is the ordinal of a GPU of CUDA, `other` a device that has no pool."""

    def __init__(self, device: object, framework: Framework) -> None:
        """device: a name, the ordinal of a GPU, or a torch.device."""
        name = f"cuda:{device}" if isinstance(device, int) and device >= 0 else str("cpu" if device is None else device)
        cuda = re.fullmatch(r"cuda(?::(\d+))?", name)
        self.gpu: int | None = int(cuda[1] or 0) if cuda else None
        self.other: str | None = None if cuda or name == "cpu" else name
        if self.other and not re.fullmatch(r"(mps|npu|xpu|xla|mlu|musa|hpu)(:\d+)?", name):
            raise SafetensorError(f"device {device} is invalid")
        if framework == "np" and name != "cpu":
            raise SafetensorError(f"Device {device} is not supported for framework numpy")


def tensor(array: Array, framework: Framework, place: Place) -> Any:
    """A tensor over the memory of an Array; a copy on a device that has no pool."""
    if framework == "np":
        return array.numpy()
    if framework == "jax":
        return _jax(array, place)
    if array.readonly:
        _libraries.warn_shared("PyTorch", array)
    made = _torch(array)
    return made.to(place.other) if place.other else made


def many(buffer: Buffer, names: list[str]) -> dict[str, Any]:
    """Tensors of PyTorch over these arrays; empty where they must be made one by one."""
    import torch

    try:
        return buffer.tensors(torch.from_dlpack, names)
    except (BufferError, RuntimeError):  # a dtype for which PyTorch has no code
        return {}


def _torch(array: Array) -> Any:
    from ..torch._tensors import tensor_of

    if array.dtype_name == "float4_e2m1fn":
        array = _paired(array)
    return tensor_of(array)


def _paired(array: Array) -> Array:
    """PyTorch's float4 has two numbers in an element."""
    shape = array.shape
    if not shape or shape[-1] % 2:
        raise SafetensorError(f"f4_x2 dtype requires that the last dim be divisible by 2 in torch: got {list(shape)}")
    return array.buffer.array((*shape[:-1], shape[-1] // 2), "float4_e2m1fnx2", offset=array.offset)


def _jax(array: Array, place: Place) -> Any:
    import jax

    # On the CPU without a copy, if that is JAX's default device.
    return jax.numpy.asarray(array.numpy()) if place.gpu is None else jax.dlpack.from_dlpack(array)
