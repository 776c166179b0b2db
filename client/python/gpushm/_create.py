# SPDX-License-Identifier: MIT
"""Buffers made after the model of something else."""

from __future__ import annotations

from typing import Any

from . import _core, _foreign


def create_like(name: str, like: Any, **options: Any) -> Any:
    """create() with the shape and dtype of another array, of any library; options as for create().

    An array in Fortran order gives one in Fortran order, unless order or strides are given.
    """
    options.setdefault("dtype", like.dtype)
    if "strides" not in options:
        options.setdefault("order", order_of(like))
    return _core.create(name, like.shape, **options)


def order_of(like: Any) -> str:
    """'F' for an array in Fortran order alone, of any library; else 'C'."""
    flags = getattr(like, "flags", None)
    try:
        return "F" if flags and flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"] else "C"
    except (KeyError, TypeError):
        return "C"


def to_device(obj: Any, name: str | None = None, *, stream: Any = None, to: Any = None, **options: Any) -> Any:
    """Copies an array, a scalar or a record into a new buffer of that name, or into the Array `to`.

    Numba's cuda.to_device() with a name. obj: what numpy.asarray() takes, or memory on a GPU of any library that tells
    it by the CUDA Array Interface or DLPack. stream: a CUDA stream to queue the copy on; `obj` must stay until the
    stream has passed it. options as for create(). Returns the Array, which is still to be published.
    """
    if to is not None:
        to.copy_to_device(obj, stream)
        return to
    if name is None:
        raise TypeError("to_device() wants a name for a new buffer, or to=, an array that is there")
    like = obj if hasattr(obj, "dtype") and hasattr(obj, "shape") else _foreign.described(obj)
    made = create_like(name, like, **options)
    try:
        made.copy_to_device(like if isinstance(like, _foreign.Memory) else obj, stream)
    except BaseException:
        made.close()
        raise
    return made
