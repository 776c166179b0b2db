# SPDX-License-Identifier: MIT
"""Keys of get_slice()[...] for NumPy and JAX: what safetensors refuses of them is refused here, in its words."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import Any

from ._header import SafetensorError


def check(key: Any, shape: list[int]) -> None:
    """Raises where the key is no place in a tensor of that shape. Slices from the end are allowed here."""
    if isinstance(key, list):
        if key:
            raise SafetensorError("Non empty lists are not implemented")
        return
    keys = key if isinstance(key, tuple) else (key,)
    for at, one in enumerate(keys):
        if not isinstance(one, slice | EllipsisType) and not _is_integer(one):
            raise SafetensorError(f"Unsupported slice index at position {at}: expected slice, int, or ellipsis")
    for axis, one in enumerate(_expanded(keys, shape)):
        _check_axis(one, axis, shape, keys)


def of_an_array(key: Any) -> Any:
    """The same place, as an array: NumPy makes a number of an element without the ellipsis, safetensors an array."""
    keys = key if isinstance(key, tuple) else (key,)
    return keys if any(one is Ellipsis for one in keys) else (*keys, ...)


def _is_integer(one: Any) -> bool:
    """Whether it is an index of one element; a bool is a mask."""
    try:
        operator.index(one)
    except TypeError:
        return False
    return not isinstance(one, bool)


def _expanded(keys: tuple[Any, ...], shape: list[int]) -> list[Any]:
    """One key for each axis, without an ellipsis."""
    first = next((at for at, one in enumerate(keys) if one is Ellipsis), len(keys))
    behind = keys[first + 1 :]
    between = len(shape) - first - len(behind)
    if between < 0 or any(one is Ellipsis for one in behind):
        raise _refused(keys, shape, "more slicing indexes than dimensions in tensor")
    return [*keys[:first], *[slice(None)] * between, *behind]


def _check_axis(one: Any, axis: int, shape: list[int], keys: tuple[Any, ...]) -> None:
    size = shape[axis]
    if isinstance(one, slice):
        start, stop = (0 if end is None else end for end in (one.start, one.stop))
        beyond = start if start >= size and one.start is not None else stop - 1 if stop > size else None
    else:
        index = operator.index(one)
        if index < -size:
            raise SafetensorError(f"Invalid index {index} for dimension {axis} of size {size}")
        beyond = index if index >= size else None
    if beyond is not None:
        raise _refused(keys, shape, f"index {beyond} out of bounds for tensor dimension #{axis} of size {size}")


def _refused(keys: tuple[Any, ...], shape: list[int], why: str) -> SafetensorError:
    return SafetensorError(f"Error during slicing [{', '.join(map(_shown, keys))}] with shape {shape}: {why}")


def _shown(one: Any) -> str:
    if one is Ellipsis:
        return "..."
    if not isinstance(one, slice):
        return str(one)
    return ":".join("" if end is None else str(end) for end in (one.start, one.stop))
