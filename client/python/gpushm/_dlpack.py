# SPDX-License-Identifier: MIT
"""DLPack as a consumer: what a capsule tells, read from its struct. The exporting side is the core's."""

from __future__ import annotations

import ctypes
from typing import Any

CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13  # DLDeviceType
LEGACY_STREAM = 1  # the legacy default stream, in DLPack's and the driver's words
_MAJOR = 1

# DLDataTypeCode with bits, lanes 1: names as gpushm has them.
_NAMES = {
    (0, 8): "int8",
    (0, 16): "int16",
    (0, 32): "int32",
    (0, 64): "int64",
    (1, 8): "uint8",
    (1, 16): "uint16",
    (1, 32): "uint32",
    (1, 64): "uint64",
    (2, 16): "float16",
    (2, 32): "float32",
    (2, 64): "float64",
    (4, 16): "bfloat16",
    (5, 64): "complex64",
    (5, 128): "complex128",
    (6, 8): "bool",
    (7, 8): "float8_e3m4",
    (8, 8): "float8_e4m3",
    (9, 8): "float8_e4m3b11fnuz",
    (10, 8): "float8_e4m3fn",
    (11, 8): "float8_e4m3fnuz",
    (12, 8): "float8_e5m2",
    (13, 8): "float8_e5m2fnuz",
    (14, 8): "float8_e8m0fnu",
}
ITEMSIZES = {name: bits // 8 for (_, bits), name in _NAMES.items()}


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class Described:
    """What an exporter's tensor tells; it holds the capsule, whose destructor gives the tensor back."""

    __slots__ = ("_capsule", "address", "device", "dtype", "shape", "strides")

    def __init__(self, capsule: Any, tensor: _Tensor) -> None:
        """strides in bytes, None: C order; dtype as memory_of() has it."""
        from . import _dtype

        name = _NAMES.get((tensor.code, tensor.bits)) if tensor.lanes == 1 else None
        if name is None:
            raise TypeError(f"a DLPack type of code {tensor.code}, {tensor.bits} bits, {tensor.lanes} lanes")
        size = tensor.bits // 8
        self._capsule = capsule
        self.shape = tuple(tensor.shape[: tensor.ndim])
        self.strides = tuple(s * size for s in tensor.strides[: tensor.ndim]) if tensor.strides else None
        self.address = (tensor.data or 0) + tensor.byte_offset
        self.device = (tensor.device_type, tensor.device_id)
        self.dtype = _dtype.decode(name, None)


def describe(obj: Any) -> Described:
    """Asks an exporter for a capsule, and reads it without taking it. What the exporter has under way on a GPU is
    ordered before the legacy default stream, as DLPack has it.
    """
    # -1, no order at all, is what some exporters take a missing stream for.
    stream = {"stream": LEGACY_STREAM} if obj.__dlpack_device__()[0] == CUDA else {}
    try:
        capsule = obj.__dlpack__(max_version=(_MAJOR, 1), **stream)
    except TypeError:  # An exporter of before DLPack 1.0.
        capsule = obj.__dlpack__(**stream)
    return Described(capsule, _read(capsule))


def _read(capsule: Any) -> _Tensor:
    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    valid = ctypes.pythonapi.PyCapsule_IsValid
    valid.restype, valid.argtypes = ctypes.c_int, [ctypes.py_object, ctypes.c_char_p]
    if valid(capsule, b"dltensor_versioned"):
        found = _Versioned.from_address(get(capsule, b"dltensor_versioned"))
        if found.major != _MAJOR:
            raise TypeError(f"DLPack {found.major}.{found.minor}: version {_MAJOR} is known here")
        tensor: _Tensor = found.tensor
        return tensor
    return _Tensor.from_address(get(capsule, b"dltensor"))
