# SPDX-License-Identifier: MIT
"""What an Array says of its elements: one value, a list, and whether they equal others. An Array is memory with a shape
and a dtype, and computes nothing else.

== takes the array as one of the library that is there, lets that compare, and returns what it returns. In host and
pinned memory the library is NumPy. On a GPU it is CuPy, or else PyTorch, whichever the process has imported. If the
other operand is an array of one of the three, its library compares.
"""

from __future__ import annotations

import operator
import struct
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from . import _core, _dtype


def on_host(array: _core.Array) -> bool:
    """Whether the CPU reaches the array's memory."""
    return array.kind not in _core._ON_GPU


# ---- the library ----


def _library_of(operand: Any) -> str | None:
    """"numpy", "cupy" or "torch" for an array of theirs; None for numbers and everything else."""
    names = {base.__module__.partition(".")[0] for base in type(operand).__mro__}
    if "numpy" in names and not getattr(operand, "shape", ()):
        return None
    return next((name for name in ("torch", "cupy", "numpy") if name in names), None)


def _choose(array: Any, other: Any = None) -> str:
    """The name of the library that computes. TypeError: no library can."""
    if isinstance(other, _core.Array):
        if on_host(array) != on_host(other):
            raise TypeError("one array is on a GPU and the other one is not: copy_to_host() makes a copy on the host")
        other = None
    found = _library_of(other) or ("numpy" if on_host(array) else None)
    found = found or next((name for name in ("cupy", "torch") if name in sys.modules), None)
    if found is None:
        raise TypeError(
            f"buffer {array.name!r} is on a GPU, where CuPy or PyTorch can compare: import one of them, or let NumPy "
            "compare what copy_to_host() returns"
        )
    return found


def _taken(array: Any, library: str) -> Any:
    """An Array as an array of that library, without a copy, except for NumPy on a GPU; anything else as it is."""
    if not isinstance(array, _core.Array):
        return array
    if library == "numpy":
        return array.__array__()  # type: ignore[attr-defined]
    if library == "cupy":
        return sys.modules["cupy"].asarray(array)
    # PyTorch does not know pinned memory in DLPack.
    given = array.__dlpack__(max_version=(1, 0), dl_device=(1, 0)) if on_host(array) else array
    return sys.modules["torch"].from_dlpack(given)


def _on_its_gpu(array: Any, library: str) -> Any:
    """A section in which CuPy launches its kernels on the array's GPU; the others find that GPU themselves."""
    if library != "cupy" or on_host(array):
        return nullcontext()
    return sys.modules["cupy"].cuda.Device(array.__dlpack_device__()[1])


def equal(function: Callable[..., Any], array: Any, other: Any) -> Any:
    """== and !=, of each element. They need no library: without one NumPy compares copies."""
    if isinstance(other, _core.Array) and on_host(array) != on_host(other):
        return function(array.__array__(), other.__array__())  # type: ignore[attr-defined]
    try:
        library = _choose(array, other)
    except TypeError:
        library = "numpy"
    with _on_its_gpu(array, library):
        return function(_taken(array, library), _taken(other, library))


def why_missing(array: Any, name: str) -> str | None:
    """What to do for an attribute that NumPy's arrays have, and an Array does not; None for any other name."""
    numpy = sys.modules.get("numpy")
    if numpy is None or name.startswith("_") or not hasattr(numpy.ndarray, name):
        return None
    instead = "numpy()" if on_host(array) else "cupy.asarray(array) or torch.from_dlpack(array)"
    return f"a gpushm.Array has no {name!r}, for it is memory with a shape: {instead} has it, without a copy"


# ---- without NumPy ----


def _letter(array: Any) -> str:
    found = _dtype.letter(array.typestr)
    if found is None:
        raise ImportError(f"elements of {array.dtype_name} need NumPy, bfloat16 and float8 also ml_dtypes: install it")
    return found


def to_list(array: Any) -> Any:
    """tolist() of booleans, integers and floats."""
    memory, letter = bytearray(array.nbytes), _letter(array)
    array._read_into(memory)
    return _nested(iter(struct.unpack(f"={array.size}{letter}", memory)), array.shape)


def _nested(values: Iterator[Any], shape: tuple[int, ...]) -> Any:
    return [_nested(values, shape[1:]) for _ in range(shape[0])] if shape else next(values)


def to_bytes(array: Any, value: Any, shape: tuple[int, ...]) -> bytes:
    """The bytes of an array of that shape, filled with a number or with lists of them, broadcast as by NumPy."""
    letter, depth, first = _letter(array), 0, value
    while isinstance(first, (list, tuple)):
        depth, first = depth + 1, first[0] if first else 0
    if depth > len(shape) or (depth and len(shape) == depth and len(value) not in (1, shape[0])):
        raise ValueError(f"a value of {depth} dimensions, or of that length, can't be broadcast to {shape}")
    if depth < len(shape):
        return to_bytes(array, value, shape[1:]) * shape[0]
    if depth:
        parts = b"".join(to_bytes(array, v, shape[1:]) for v in value)
        return parts * (shape[0] if len(value) == 1 else 1)
    if not isinstance(value, (bool, int, float)):
        raise ImportError(f"to convert {type(value).__name__} to {array.dtype_name} needs NumPy: install numpy")
    try:
        return struct.pack(f"={letter}", value if letter in "?efd" else int(value))
    except struct.error as e:
        raise OverflowError(f"{array.dtype_name}: {e}") from None


class Values:
    """What an Array has of a ndarray's."""

    __slots__ = ()

    def __eq__(self, other: object) -> Any:
        return equal(operator.eq, self, other)

    def __ne__(self, other: object) -> Any:
        return equal(operator.ne, self, other)

    # Of the object, as PyTorch has it: sets and dicts find an Array by what it is, not by what is in it.
    def __hash__(self) -> int:
        return object.__hash__(self)

    # ---- one value ----

    def item(self) -> Any:
        """The only element, as a number of Python's. ValueError: there are more, or none."""
        array: Any = self
        if _dtype.numpy_if_any():
            return array.copy_to_host().item()
        if array.size != 1:
            raise ValueError("item() is of an Array of one element")
        return to_list(array.reshape(()))

    def __bool__(self) -> bool:
        return bool(self.copy_to_host() if _dtype.numpy_if_any() else self.item())  # type: ignore[attr-defined]

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        """As NumPy: of an integer without dimensions. bytes() and the like must not take another one for a number."""
        array: Any = self
        if array.ndim or not array.dtype_name.startswith(("int", "uint")):
            raise TypeError("only an Array of one integer, without dimensions, is an index")
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    def tolist(self) -> Any:
        """The elements as (nested) lists of Python's numbers."""
        return self.copy_to_host().tolist() if _dtype.numpy_if_any() else to_list(self)  # type: ignore[attr-defined]

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Called for attributes that an Array does not have, and for getters that raise AttributeError."""
            why = why_missing(self, name)
            if why is not None:
                raise AttributeError(why)
            return object.__getattribute__(self, name)
