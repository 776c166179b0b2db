# SPDX-License-Identifier: MIT
"""Copies into Arrays, from anything: from the memory of other libraries as it is, and through NumPy what must be
converted.

NumPy has no bfloat16 or float8, and PyTorch gives it no tensor that requires a gradient. So an object that says where
its memory is, by DLPack or the CUDA Array Interface, is copied from there, and NumPy is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from . import _core, _driver, _dtype, _foreign, _libraries, _values

if TYPE_CHECKING:
    from ._typing import CudaStream, NDArray


def fill(array: Any, source: Any, stream: CudaStream | None = None, casting: Any = "same_kind") -> None:
    """Copies the source into the array, broadcast to its shape. casting: of NumPy, where the types differ."""
    stream = stream or None
    one = _exchanged(array, source, _foreign.exchange_apis().get(type(source)), stream)
    if one is None or not _is_ordered(one, stream):
        one = _direct(array, source, stream)
    if one is not None:
        _run([one], stream)
    else:
        _convert(array, source, stream, casting)


def fill_many(pairs: Iterable[tuple[str, Any, Any]], stream: CudaStream | None = None) -> None:
    """Copies the values of (name, array, value): all are queued, and waited for once. A value has its array's shape, or
    is a number.
    """
    stream = stream or None
    queued, others = [], []
    apis, ordered = _foreign.exchange_apis(), set()
    for name, array, value in pairs:
        try:
            one = _exchanged(array, value, apis.get(type(value)), stream)
            if one is not None and (one[3] in ordered or _is_ordered(one, stream)):
                queued.append(one)
                ordered.add(one[3])
                continue
            shape = getattr(value, "shape", None)
            if isinstance(value, (list, tuple)):
                import numpy

                shape = numpy.shape(value)
            if shape is not None and tuple(shape) != array.shape:
                raise ValueError(f"the value has shape {tuple(shape)}, the array {array.shape}")
            before, one = one, _direct(array, value, stream)
            if before is not None and one is not None:
                # Asked for a capsule, the library has ordered its current stream of that GPU before the copies.
                ordered.add(before[3])
        except (TypeError, ValueError, BufferError) as e:
            raise type(e)(f"array {name!r}: {e}") from e
        if one is not None:
            queued.append(one)
        else:
            others.append((array, value))
    _run(queued, stream)
    for array, value in others:
        _convert(array, value, stream, "same_kind")


def is_numpys(value: Any) -> bool:
    """Whether it is an ndarray or a scalar of NumPy's."""
    return type(value).__module__ == "numpy"


def has_values(value: Any) -> bool:
    """Whether there is something to copy, and not only a description: (shape, dtype), or a tensor on PyTorch's meta
    device.
    """
    if isinstance(value, tuple) or getattr(value, "is_meta", False):
        return False
    return isinstance(value, _core.Array) or any(
        hasattr(value, name) for name in ("__dlpack__", "__cuda_array_interface__", "__array_interface__", "__array__")
    )


# ---- memory as it is ----


def _run(copies: list[tuple[Any, ...]], stream: CudaStream | None) -> None:
    """Without a stream the copies come behind what the libraries' current streams have."""
    if stream is None:
        for buffer, array in {one[0].buffer: one[0] for one in copies}.items():
            if buffer.device_ptr is not None:
                _libraries.wait_for_streams(_device_of(array))
    _core._copy_many(copies, stream)
    # Of queued copies, the memory of those that are temporary goes now.
    for array, *_, memory in copies if stream is not None else ():
        if getattr(memory, "temporary", False):
            wait(array, stream)


def _device_of(array: Any) -> int | None:
    """The GPU on which its copies run; None: the thread's."""
    return array.__dlpack_device__()[1] if array.device is not None else None


def _exchanged(array: Any, source: Any, api: Any, stream: CudaStream | None) -> tuple[Any, ...] | None:
    """The copy of a tensor whose library has DLPack's exchange API; None: it has not, or it is no plain copy."""
    if api is None:
        return None
    one = _core._copy_of(array, source, api)
    if one is None and stream is None and getattr(source, "is_cuda", False) and not source.is_contiguous():
        # As in _direct().
        one = _core._copy_of(array, source.detach().contiguous(), api)
    return one


def _is_ordered(one: tuple[Any, ...], stream: CudaStream | None) -> bool:
    """Whether the library's current stream needs no order of its own before this copy: memory of the host has none, and
    _run() waits for those of the GPU that has the array.
    """
    return one[3] < 0 or (stream is None and one[3] == _device_of(one[0]))


def _direct(array: Any, source: Any, stream: CudaStream | None) -> tuple[Any, ...] | None:
    """The copy, as _core._copy_many() takes it; None: the source's memory is not known, or has another type."""
    memory = _foreign.memory_if_any(source, stream)
    if memory is None or memory.type != (array.dtype_name, array.descr) or memory.padded:
        return None
    if stream is None and memory.on_gpu and memory.is_strided() and hasattr(source, "contiguous"):
        # A kernel of the library's is faster than many small copies, and its result lives until they are done.
        memory = _foreign.memory_of(source.contiguous(), stream)
    _foreign.wait_for(memory, stream)
    strides = memory.strides
    if memory.shape != array.shape:
        strides = _broadcast(memory, array.shape)
    return array, memory.address, strides, memory.device if memory.on_gpu else -1, memory


def _broadcast(memory: _foreign.Memory, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The strides with which the memory has that shape, by NumPy's rule."""
    extra = len(shape) - len(memory.shape)
    if extra < 0 or any(n not in (1, m) for n, m in zip(memory.shape, shape[extra:], strict=True)):
        raise ValueError(f"the source has shape {memory.shape}, which can't be broadcast to the array's {shape}")
    if memory.itemsize == 0:
        raise ValueError(f"elements of {memory.type[0]} are packed: the source must have the array's shape {shape}")
    strides = memory.strides or _foreign.c_strides(memory.shape, memory.itemsize)
    return (0,) * extra + tuple(0 if n == 1 else s for n, s in zip(memory.shape, strides, strict=True))


# ---- through NumPy ----


def _numpy_dtype(array: Any, source: Any) -> Any:
    """The numpy.dtype of its elements; TypeError where NumPy has none."""
    dtype = array.dtype
    if isinstance(dtype, str):
        given = getattr(source, "dtype", type(source).__name__)
        raise TypeError(
            f"the array has dtype {dtype}, which NumPy has not, the source {given}: convert it first, with a library "
            f"that knows {dtype}, or install ml_dtypes, for bfloat16 and float8"
        )
    return dtype


def _convert(array: Any, source: Any, stream: CudaStream | None, casting: Any) -> None:
    numpy: Any = _dtype.numpy_if_any()
    if numpy is None:
        array._write_from(_values.to_bytes(array, source, array.shape), stream)
        return wait(array, stream) if stream is not None else None
    memory = _foreign.memory_if_any(source, stream)
    found: Any = source if memory is None or is_numpys(source) else _host_copy(array, memory)
    if memory is not None and memory.padded and memory.type[0] == array.dtype_name:
        matched = _packed(numpy.broadcast_to(found, array.shape), memory.type[0])
    else:
        dtype = _numpy_dtype(array, source)
        found = numpy.asarray(found) if hasattr(found, "dtype") else numpy.asarray(found, dtype)
        if found.dtype != dtype:
            found = found.astype(dtype, casting=casting)
        matched = numpy.broadcast_to(found, array.shape)
    array._write_from(matched, stream)
    if stream is not None and not _is_the_callers(matched, source):
        wait(array, stream)


def _host_copy(array: Any, memory: _foreign.Memory) -> NDArray:
    """An ndarray of the elements, which NumPy can convert."""
    if not memory.padded and isinstance(memory.dtype, str):
        raise TypeError(
            f"the array has dtype {array.dtype_name}, the source {memory.dtype}, which NumPy has not: convert it "
            "first, with its library, or install ml_dtypes, for bfloat16 and float8"
        )
    return _foreign.to_host(memory)


def _packed(loose: NDArray, name: str) -> NDArray:
    """The bytes of elements narrower than a byte, of which each has a byte of its own here: packed as gpushm has them,
    the low end first.
    """
    import numpy

    count = _core._dtype_bits(name)
    bits = numpy.unpackbits(loose.view("uint8").reshape(-1, 1), axis=1, count=count, bitorder="little")
    return numpy.packbits(bits.reshape(-1), bitorder="little")


def _is_the_callers(matched: Any, source: Any) -> bool:
    """Whether the source's own memory is copied, which the caller keeps."""
    import numpy

    if isinstance(source, numpy.ndarray):
        return bool(numpy.may_share_memory(matched, source))
    while isinstance(matched.base, numpy.ndarray):
        matched = matched.base
    return not matched.flags.owndata


def wait(array: Any, stream: CudaStream | None) -> None:
    """Waits for a queued copy from memory that is freed now. Copies to host pools are never queued."""
    if array.device_ptr is not None:
        _driver.synchronize(_core._stream(stream), array.device)


def described(name: str, value: object) -> NDArray:
    """An ndarray of a list or a number, for create_many()."""
    if not isinstance(value, (list, bool, int, float, complex)):
        raise TypeError(f"array {name!r}: an array, a list, a number or (shape, dtype) is wanted, not {value!r}")
    import numpy

    found = numpy.asarray(value)
    _dtype.encode(found.dtype)
    return found
