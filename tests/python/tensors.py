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


# ---- DLPack's exchange API ----


class _Api(ctypes.Structure):
    _fields_: ClassVar = [
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32), ("previous", ctypes.c_void_p),
        ("allocate", ctypes.c_void_p), ("from_object", ctypes.c_void_p), ("to_object", ctypes.c_void_p),
        ("borrow", ctypes.c_void_p), ("current_stream", ctypes.c_void_p),
    ]  # fmt: skip


_address_of_object = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(ctypes.c_void_p))
_object_of_address = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_void_p))
_stream_of_device = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_int, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p))


class Taken:
    """What the library makes of a tensor that it gets: it owns the struct."""

    def __init__(self, address: int) -> None:
        self.address, self.struct = address, _Versioned.from_address(address)
        t = self.struct.tensor
        self.shape, self.read_only = tuple(t.shape[: t.ndim]), bool(self.struct.flags & 1)
        self.strides, self.device = tuple(t.strides[: t.ndim]), (t.device_type, t.device_id)
        self.type = next(name for name, words in TYPES.items() if words == (t.code, t.bits, t.lanes))

    def bytes(self) -> bytes:
        """Those from element [0, 0, ...] on, in C order, of memory of the host."""
        return ctypes.string_at(self.struct.tensor.data, int(np.prod(self.shape)) * TYPES[self.type][1] // 8)

    def __del__(self) -> None:
        self.struct.deleter(self.address)


class FastTensor(Tensor):
    """A tensor of a library that has the exchange API, and so is read without __dlpack__()."""

    is_negative = False
    refused: ClassVar[set[str]] = set()  # types that the library does not take
    stream = 0  # the library's current one
    streams_asked: ClassVar[list[tuple[int, int]]] = []

    def is_neg(self) -> bool:
        """Whether it is the negative of what is in memory, as PyTorch has it."""
        return self.is_negative


@_address_of_object
def _from_object(tensor: FastTensor, ret: Any) -> int:
    if tensor.type in FastTensor.refused:
        return -1
    # As PyTorch's: a gradient is no obstacle, and nobody is asked for a stream.
    plain = Tensor(tensor.raw, tensor.shape, tensor.type, tensor.strides, tensor.device, tensor.flags, tensor.offset)
    capsule = plain.__dlpack__(max_version=(1, 1))
    ret[0] = _pointer(id(capsule), b"dltensor_versioned")
    _rename(id(capsule), _USED)
    return 0


_rename, _USED = _python.PyCapsule_SetName, ctypes.c_char_p(b"used_dltensor_versioned")
_rename.argtypes = (ctypes.c_void_p, ctypes.c_char_p)


@_object_of_address
def _to_object(address: int, ret: Any) -> int:
    t = _Versioned.from_address(address).tensor
    if any(TYPES[name] == (t.code, t.bits, t.lanes) for name in FastTensor.refused):
        return -1
    taken = Taken(address)
    _keep(id(taken))
    ret[0] = id(taken)
    return 0


_keep = ctypes.PyDLL(None).Py_IncRef
_keep.argtypes = (ctypes.c_void_p,)


@_stream_of_device
def _current_stream(device_type: int, device: int, ret: Any) -> int:
    FastTensor.streams_asked.append((device_type, device))
    ret[0] = FastTensor.stream or None
    return 0


_API_NAME = b"dlpack_exchange_api"  # The capsule points to it.
_newer = _Api(2, 0)
_api = _Api(
    1, 3, None, None, *(ctypes.cast(f, ctypes.c_void_p) for f in (_from_object, _to_object)), None,
    ctypes.cast(_current_stream, ctypes.c_void_p),
)  # fmt: skip
_newer.previous = ctypes.addressof(_api)
FastTensor.__dlpack_c_exchange_api__ = _new(  # type: ignore[attr-defined]
    ctypes.addressof(_newer), _API_NAME, None
)
