# SPDX-License-Identifier: MIT
"""A frame's meta as CBOR (RFC 8949): a map behind the tag 55799, "self-described CBOR", by which readers know it. Keys
of the map that are numbers belong to the package:

    0, 1, ...  the shape of the array with that index, where it is not the slot's
    -1         the program's bytes, where shapes are to be said, too, or they begin as the tag

Both directions know integers of 64 bits, floats, text, bytes, lists, maps, true, false and null; lengths are definite,
and numbers need not be the shortest.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from ctypes import c_float
from functools import lru_cache
from typing import Any

_TAG = b"\xd9\xd9\xf7"
_UNSIGNED, _NEGATIVE, _BYTES, _TEXT, _LIST, _MAP, _, _OTHER = range(8)
_WORDS = {False: b"\xf4", True: b"\xf5", None: b"\xf6"}
_REALS = {0xF9: struct.Struct(">e").unpack, 0xFA: struct.Struct(">f").unpack, 0xFB: struct.Struct(">d").unpack}
_FIRST = [bytes((byte,)) for byte in range(256)]


# ---- encoding ----


def encode(value: Mapping[str, Any] | bytes | None, shapes: Mapping[int, Sequence[int]] | None) -> bytes:
    """A map of the value and of the shapes."""
    pairs = [_integer(index) + _item(shape) for index, shape in (shapes or {}).items()]
    if isinstance(value, bytes):
        pairs.append(_integer(-1) + _item(value))
    elif value:
        pairs += _pairs(value)
    return _TAG + _head(_MAP, len(pairs)) + b"".join(pairs)


def _head(major: int, n: int) -> bytes:
    """The first byte of an item, and a number."""
    if n < 24:
        return _FIRST[major << 5 | n]
    size = 0 if n < 1 << 8 else 1 if n < 1 << 16 else 2 if n < 1 << 32 else 3
    return _FIRST[major << 5 | 24 + size] + n.to_bytes(1 << size, "big")


def _integer(n: int) -> bytes:
    if not -(1 << 63) <= n < 1 << 64:
        raise OverflowError(f"{n} has more than 64 bits")
    return _head(_UNSIGNED, n) if n >= 0 else _head(_NEGATIVE, ~n)


def _real(x: float) -> bytes:
    return struct.pack(">Bf", 0xFA, x) if c_float(x).value == x else struct.pack(">Bd", 0xFB, x)


def _pairs(values: Mapping[str, Any]) -> list[bytes]:
    return [_key(key) + _item(value) for key, value in values.items()]


@lru_cache(maxsize=256)
def _key(key: object) -> bytes:
    if not isinstance(key, str):
        raise TypeError(f"a frame's meta has keys of str, not {key!r}")
    return _text(key)


def _text(text: str) -> bytes:
    encoded = text.encode()
    return _head(_TEXT, len(encoded)) + encoded


def _item(o: Any) -> bytes:
    if o is None or isinstance(o, bool):
        return _WORDS[o]
    if isinstance(o, int):
        return _integer(o)
    if isinstance(o, str):
        return _text(o)
    if isinstance(o, (bytes, bytearray, memoryview)):
        return _head(_BYTES, len(bytes(o))) + o
    if isinstance(o, (list, tuple)):
        return _head(_LIST, len(o)) + b"".join(map(_item, o))
    if isinstance(o, dict):
        return _head(_MAP, len(o)) + b"".join(_pairs(o))
    # Numbers of other libraries, too: NumPy's scalars.
    if hasattr(o, "__index__") and not hasattr(o, "__len__"):
        return _integer(o.__index__())
    if hasattr(o, "__float__") and not hasattr(o, "__len__"):
        return _real(float(o))
    what = "numbers, str, bytes, bool, None, lists and dicts"
    raise TypeError(f"a frame's meta has {what}, not {type(o)!r}")


# ---- decoding ----


def decode(data: bytes) -> tuple[Any, dict[int, Any] | None]:
    """The value and the shapes. ValueError, IndexError, TypeError: it is no map that is known here; another process has
    written it.
    """
    found, end = _scan(data, len(_TAG))
    if not isinstance(found, dict) or end != len(data):
        raise ValueError
    own: Any = None
    shapes = {}
    for key in [key for key in found if not isinstance(key, str)]:
        one = found.pop(key)
        if key == -1 and isinstance(one, bytes):
            own = one
        elif isinstance(one, list):
            shapes[key] = one
        else:
            raise ValueError
    if own is None:
        own = b"" if shapes and not found else found
    return own, shapes or None


def _scan(data: bytes, at: int) -> tuple[Any, int]:
    """The item at that place, and where it ends."""
    first = data[at]
    major, n = first >> 5, first & 31
    at += 1
    if n >= 24:
        start, at = at, at + (1 << n - 24)
        if n > 27 or at > len(data):
            raise ValueError
        n = int.from_bytes(data[start:at], "big")
    if major == _UNSIGNED:
        return n, at
    if major == _NEGATIVE:
        return ~n, at
    if major in (_BYTES, _TEXT):
        part = data[at : at + n]
        if len(part) < n:
            raise ValueError
        return part if major == _BYTES else part.decode(), at + n
    if major == _LIST:
        return _scan_many(data, at, n)
    if major == _MAP:
        row, at = _scan_many(data, at, 2 * n)
        return dict(zip(row[::2], row[1::2], strict=True)), at
    if first in _REALS:
        return _REALS[first](data[start:at])[0], at
    return next(word for word, byte in _WORDS.items() if byte[0] == first), at


def _scan_many(data: bytes, at: int, n: int) -> tuple[list[Any], int]:
    """A number that is too large ends where the bytes end."""
    row = []
    for _ in range(n):
        one, at = _scan(data, at)
        row.append(one)
    return row, at
