# SPDX-License-Identifier: MIT
"""A library of tensors of the tests' own, which behaves as PyTorch does: what NumPy can't have is refused, and so is
what requires a gradient. Its memory is the host's, or that of an Array on a GPU.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

import numpy as np

CPU, CUDA = 1, 2
PADDED = 1 << 2  # DLPACK_FLAG_BITMASK_IS_SUBBYTE_TYPE_PADDED
# gpushm's name: (DLPack's code, bits, lanes).
TYPES = {
    "bool": (6, 8, 1), "int8": (0, 8, 1), "int16": (0, 16, 1), "int32": (0, 32, 1), "int64": (0, 64, 1),
    "uint8": (1, 8, 1), "uint16": (1, 16, 1), "uint32": (1, 32, 1), "uint64": (1, 64, 1),
    "float16": (2, 16, 1), "float32": (2, 32, 1), "float64": (2, 64, 1), "bfloat16": (4, 16, 1),
    "complex32": (5, 32, 1), "complex64": (5, 64, 1), "complex128": (5, 128, 1),
    "float8_e3m4": (7, 8, 1), "float8_e4m3": (8, 8, 1), "float8_e4m3b11fnuz": (9, 8, 1), "float8_e4m3fn": (10, 8, 1),
    "float8_e4m3fnuz": (11, 8, 1), "float8_e5m2": (12, 8, 1), "float8_e5m2fnuz": (13, 8, 1),
    "float8_e8m0fnu": (14, 8, 1), "float6_e2m3fn": (15, 6, 1), "float6_e3m2fn": (16, 6, 1),
    "float4_e2m1fn": (17, 4, 1), "float4_e2m1fnx2": (17, 4, 2), "int4": (0, 4, 1), "uint4": (1, 4, 1),
    "int2": (0, 2, 1), "uint2": (1, 2, 1), "float32x4": (2, 32, 4),
}  # fmt: skip


class _Tensor(ctypes.Structure):
    _fields_: ClassVar = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]  # fmt: skip


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Versioned(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("context", ctypes.c_void_p),
        ("deleter", _Deleter), ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    ]  # fmt: skip


class _Legacy(ctypes.Structure):
    _fields_: ClassVar = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", _Deleter)]


# Not ctypes.pythonapi, whose functions have one signature for the whole process.
_python = ctypes.PyDLL(None)
_new = _python.PyCapsule_New
_new.restype, _new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
_is_valid = _python.PyCapsule_IsValid
_is_valid.argtypes = (ctypes.c_void_p, ctypes.c_char_p)
_pointer = _python.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_char_p)

# The structs that have been given out, by address.
alive: dict[int, Any] = {}


@_Deleter
def _delete(address: int) -> None:
    del alive[address]


def _on_capsule_gone(capsule: int) -> None:
    for name in (b"dltensor_versioned", b"dltensor"):
        if _is_valid(capsule, name):
            _delete(_pointer(capsule, name))


_destructor = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(_on_capsule_gone)


class dtype:
    """torch.float32 and the like."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return f"torch.{self.name.replace('fnx2', 'fn_x2')}"


dtype.__module__ = "torch"


class Tensor:
    """raw: the bytes from element [0, 0, ...] on, or the address on a GPU; strides: in elements."""

    legacy = False

    def __init__(
        self,
        raw: Any,
        shape: tuple[int, ...],
        type: str,
        strides: tuple[int, ...] | None = None,
        device: tuple[int, int] = (CPU, 0),
        flags: int = 0,
        offset: int = 0,
    ) -> None:
        self.raw, self.shape, self.type, self.strides = raw, shape, type, strides
        self.device, self.flags, self.offset = device, flags, offset
        self.dtype = dtype(type)
        self.requires_grad = False
        self.asked: list[dict[str, Any]] = []

    def detach(self) -> Tensor:
        """The same memory, without a gradient."""
        found = type(self)(self.raw, self.shape, self.type, self.strides, self.device, self.flags, self.offset)
        found.asked = self.asked
        return found

    def __array__(self, *args: Any, **words: Any) -> Any:
        if self.requires_grad:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
        if self.device[0] == CUDA:
            raise TypeError("can't convert cuda:0 device type tensor to numpy.")
        raise TypeError(f"Got unsupported ScalarType {self.type}")

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self, **words: Any) -> Any:
        self.asked.append(words)
        if self.requires_grad:
            raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
        if self.legacy and "max_version" in words:
            raise TypeError("unexpected keyword argument 'max_version'")
        n = len(self.shape)
        address = self.raw if isinstance(self.raw, int) else self.raw.ctypes.data
        shape, strides = (ctypes.c_int64 * max(n, 1))(*self.shape), (ctypes.c_int64 * max(n, 1))(*(self.strides or ()))
        found = _Tensor(
            address, *self.device, n, *TYPES[self.type], shape, strides if self.strides else None, self.offset
        )
        made = _Legacy(found, None, _delete) if self.legacy else _Versioned(1, 1, None, _delete, self.flags, found)
        alive[ctypes.addressof(made)] = made, shape, strides, self.raw
        return _new(ctypes.addressof(made), b"dltensor" if self.legacy else b"dltensor_versioned", _destructor)


class LegacyTensor(Tensor):
    """DLPack before 1.0."""

    legacy = True


def random_bytes(n: int, seed: int = 1) -> np.ndarray:
    """Bytes that are a valid bool, too."""
    return np.random.default_rng(seed).integers(0, 2, n, np.uint8)
