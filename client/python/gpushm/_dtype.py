# SPDX-License-Identifier: MIT
"""Types of elements: from all the ways to write them in Python to gpushm's names, and back to NumPy's objects.

The core knows gpushm's names, and calls this module for everything else. A record's descr is the text of NumPy's list
of its fields.
"""

from __future__ import annotations

import ast
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from . import _core

# NumPy's kinds without a type of gpushm's: text, bytes, dates, time spans. gpushm keeps them as records whose descr is
# NumPy's typestr.
_OPAQUE = "SUMm"
# The struct module's letters, and NumPy's for complex numbers.
_FORMATS = {"b1": "?", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "u1": "B", "u2": "H", "u4": "I", "u8": "Q"}
_FORMATS |= {"f2": "e", "f4": "f", "f8": "d", "c8": "Zf", "c16": "Zd"}


def encode(dtype: object) -> tuple[str, str | None]:
    """(name, descr or None) of a dtype: a name, a numpy.dtype, a Python, NumPy, ml_dtypes or torch type.

    TypeError: it is no dtype. The core raises NotSupported for a name that gpushm does not know.
    """
    if type(dtype).__module__ == "torch":
        return _encode_torch(dtype), None
    numpy = numpy_if_any()
    if numpy is None:
        raise TypeError(f"{dtype!r} is no dtype of gpushm's, and NumPy is not here to ask")
    if isinstance(dtype, numpy.dtype):
        return _encode_numpy(dtype)
    try:
        found = numpy.dtype(dtype)
    except TypeError:
        # NumPy has bfloat16 and float8 only with ml_dtypes; gpushm always has them.
        if isinstance(dtype, str) and _core._dtype_bits(dtype):
            return dtype, None
        found = _ml_dtype(numpy, dtype)
        if found is None:
            raise TypeError(f"{dtype!r} is no dtype: 'float32', numpy.float32 and torch.float32 are") from None
    return _encode_numpy(found)


@lru_cache(maxsize=256)
def _encode_torch(dtype: Hashable) -> str:
    """The name of torch.float32 and the like. torch.float4_e2m1fn_x2 has two numbers in an element."""
    name = str(dtype).removeprefix("torch.").replace("_x2", "x2")
    if not _core._dtype_bits(name):
        raise TypeError(f"{dtype!r} is no dtype that gpushm knows: {name}")
    return name


@lru_cache(maxsize=256)
def _encode_numpy(dtype: Any) -> tuple[str, str | None]:
    if not dtype.isnative:
        raise TypeError(f"{dtype}: gpushm has no type of the other byte order")
    if dtype.hasobject:
        raise TypeError(f"{dtype}: Python objects can't be shared between processes")
    if dtype.subdtype is not None:
        raise TypeError(f"{dtype}: put the inner shape behind the array's own shape")
    if dtype.names is not None:
        return f"record{dtype.itemsize}", repr(dtype.descr)
    if dtype.kind in _OPAQUE or (dtype.kind == "V" and dtype.type.__module__ == "numpy"):
        return f"record{dtype.itemsize}", repr(dtype.str)
    return str(dtype.name), None


@lru_cache(maxsize=256)
def itemsize(name: str) -> int:
    """Bytes of an element; 0: elements are packed."""
    bits = _core._dtype_bits(name)
    return 0 if bits % 8 else bits // 8


def bits(dtype: object) -> int:
    """Of an element."""
    return (_core._dtype_bits(dtype) if isinstance(dtype, str) else 0) or _core._dtype_bits(encode(dtype)[0])


def of(name: str, descr: str | None) -> Any:
    """A dtype for create() and Buffer.array(): the name, or a record's numpy.dtype."""
    return name if descr is None else decode(name, descr)


@lru_cache(maxsize=256)
def decode(name: str, descr: str | None) -> Any:
    """The numpy.dtype; the name where NumPy and ml_dtypes have none, or are not installed."""
    numpy = numpy_if_any()
    if numpy is None:
        return name
    if descr is not None:
        from numpy.lib.format import descr_to_dtype

        return descr_to_dtype(ast.literal_eval(descr))
    if name.startswith("record"):
        return numpy.dtype(f"V{name.removeprefix('record')}")
    # ml_dtypes uses a whole byte for a float4; gpushm packs two into a byte.
    if not itemsize(name):
        return name
    try:
        return numpy.dtype(name)
    except TypeError:
        found = _ml_dtype(numpy, name)
        return name if found is None else found


def is_raw(view: memoryview, name: str, shape: tuple[int, ...]) -> bool:
    """Whether the bytes of a memoryview are an array's: a row of bytes, or elements of that dtype and shape."""
    word = view.format.lstrip("@=<")
    if view.ndim == 1 and word in ("B", "c"):
        return True
    if view.ndim != 1 and view.shape != shape:
        return False
    for kind, letters in (("int", "bhilqn"), ("uint", "BHILQN"), ("float", "efd")):
        if word in list(letters):
            return name == f"{kind}{8 * view.itemsize}"
    return name == {"?": "bool", "Zf": "complex64", "Zd": "complex128"}.get(word)


def fields(descr: str) -> Any:
    """A descr's text as NumPy's list of fields."""
    found = ast.literal_eval(descr)
    return found if isinstance(found, list) else [("", found)]


@lru_cache(maxsize=256)
def record_format(descr: str) -> str | None:
    """A record's format in the buffer protocol (PEP 3118), as NumPy writes it; None: a field has none, as dates."""
    try:
        return _format(ast.literal_eval(descr))
    except KeyError:
        return None


def letter(typestr: str | None) -> str | None:
    """The struct module's letter for it; None: it has none."""
    found = _FORMATS.get((typestr or "")[1:], "")
    return found if len(found) == 1 else None


def _format(kind: Any) -> str:
    if isinstance(kind, list):
        return "T{" + "".join(_field_format(*field) for field in kind) + "}"
    order, letter, size = kind[0].strip("|"), kind[1], kind[2:]
    if letter in "SUV":
        return f"{order}{size}{'swx'['SUV'.index(letter)]}"
    return f"{order}{_FORMATS[letter + size]}"


def _field_format(name: Any, kind: Any, shape: tuple[int, ...] = ()) -> str:
    """NumPy has no name for padding, and (title, name) for a field with a title."""
    name = name[-1] if isinstance(name, tuple) else name
    if ":" in name:
        raise KeyError(name)
    return (f"({','.join(map(str, shape))})" if shape else "") + _format(kind) + (f":{name}:" if name else "")


def _ml_dtype(numpy: Any, name: object) -> Any:
    try:
        import ml_dtypes
    except ImportError:
        return None
    found = getattr(ml_dtypes, name, None) if isinstance(name, str) else None
    return None if found is None else numpy.dtype(found)


def numpy_if_any() -> Any:
    try:
        import numpy
    except ImportError:
        return None
    return numpy
