# SPDX-License-Identifier: MIT
"""Buffers made after the model of something else."""

from __future__ import annotations

from typing import Any

from . import _core


def create_like(name: str, like: Any, **options: Any) -> Any:
    """create() with the shape and dtype of another array, of any library; options as for create().

    An array in Fortran order gives one in Fortran order, unless order or strides are given.
    """
    options.setdefault("dtype", like.dtype)
    if "order" not in options and "strides" not in options:
        flags = getattr(like, "flags", None)
        options["order"] = "F" if flags and flags["F_CONTIGUOUS"] and not flags["C_CONTIGUOUS"] else "C"
    return _core.create(name, like.shape, **options)


def to_device(obj: Any, name: str | None = None, *, stream: Any = None, to: Any = None, **options: Any) -> Any:
    """Copies an array, or what numpy.asarray() takes, into a new buffer of that name, or into the array `to`.

    Numba's cuda.to_device() with a name. stream: a CUDA stream to queue the copy on; `obj` must stay until the
    stream has passed it. options as for create(). Returns the Array, which is still to be published.
    """
    if to is not None:
        to.copy_to_device(obj, stream)
        return to
    if name is None:
        raise TypeError("to_device() wants a name for a new buffer, or to=, an array that is there")
    if not hasattr(obj, "dtype"):
        import numpy

        obj = numpy.asarray(obj)
    made = create_like(name, obj, **options)
    try:
        made.copy_to_device(obj, stream)
    except BaseException:
        made.close()
        raise
    return made
