# SPDX-License-Identifier: MIT
"""Arithmetic of Arrays. An Array is memory with a shape and a dtype: it computes nothing itself.

Operators and a few methods take the array as one of the library that is there, let that compute, and return what it
returns. In host and pinned memory the library is NumPy. On a GPU it is CuPy, or else PyTorch, whichever the process has
imported. If the other operand is an array of one of the three, its library computes.
"""

from __future__ import annotations

import errno
import operator
import sys
from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core, _dtype

if TYPE_CHECKING:
    from typing import Self

    from ._typing import DTypeLike

Updated = TypeVar("Updated", bound="Operators")

# Methods of torch.Tensor that do what NumPy's methods of other names do.
_TORCH_NAMES = {"copy": "clone", "max": "amax", "min": "amin"}


def on_host(array: _core.Array) -> bool:
    """Whether the CPU reaches the array's memory."""
    return array.kind in ("host", "pinned")


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
            f"buffer {array.name!r} is on a GPU, where CuPy or PyTorch can compute: import one of them, or let NumPy "
            "compute with what copy_to_host() returns"
        )
    return found


class _OnTheHost:
    """A host or pinned array for PyTorch, which does not know pinned memory in DLPack."""

    def __init__(self, array: Any) -> None:
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return 1, 0

    def __dlpack__(self, **words: Any) -> Any:
        return self._array.__dlpack__(**words | {"dl_device": (1, 0)})


def _taken(array: Any, library: str) -> Any:
    """An Array as an array of that library, without a copy, except for NumPy on a GPU; anything else as it is."""
    if not isinstance(array, _core.Array):
        return array
    if library == "numpy":
        return array.__array__()  # type: ignore[attr-defined]
    if library == "cupy":
        return sys.modules["cupy"].asarray(array)
    return sys.modules["torch"].from_dlpack(_OnTheHost(array) if on_host(array) else array)


def _on_its_gpu(array: Any, library: str) -> Any:
    """A section in which CuPy launches its kernels on the array's GPU; the others find that GPU themselves."""
    if library != "cupy" or on_host(array):
        return nullcontext()
    return sys.modules["cupy"].cuda.Device(array.__dlpack_device__()[1])


def compute(function: Callable[..., Any], array: Any, *operands: Any, reflected: bool = False) -> Any:
    """function(array, *operands), or with the operands in the other order, by the library that is there."""
    library = _choose(array, *operands)
    with _on_its_gpu(array, library):
        taken = [_taken(operand, library) for operand in (array, *operands)]
        return function(*(reversed(taken) if reflected else taken))


def update(function: Callable[..., Any], updated: Updated, operand: object) -> Updated:
    """An operation in place, such as operator.iadd(); returns the array."""
    array: Any = updated
    if array.readonly:
        raise _core.ReadOnly(errno.EROFS, f'buffer "{array.name}" is open for reading only')
    library = _choose(array, operand)
    if library == "numpy" and not on_host(array):
        # NumPy has a copy, into which it must not write.
        raise TypeError(f"buffer {array.name!r} is on a GPU: NumPy can't change it in place; assign to array[...]")
    with _on_its_gpu(array, library):
        function(_taken(array, library), _taken(operand, library))
        if not on_host(array):
            stream = _stream_of(library, array)
            # An empty copy notes the stream in the buffer: the array's next consumer waits for it.
            array.buffer.array((0,), "uint8")._write_from(b"", stream)
    return updated


def _stream_of(library: str, array: Any) -> Any:
    if library == "cupy":
        return sys.modules["cupy"].cuda.get_current_stream()
    return sys.modules["torch"].cuda.current_stream(array.__dlpack_device__()[1])


def call(array: Any, name: str, *arguments: Any, **words: Any) -> Any:
    """A method of the library's arrays."""
    library = _choose(array)
    method = _TORCH_NAMES.get(name, name) if library == "torch" else name
    with _on_its_gpu(array, library):
        return getattr(_taken(array, library), method)(*arguments, **words)


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


def converted(array: Any, dtype: Any) -> Any:
    """astype()."""
    if _choose(array) != "torch":
        return call(array, "astype", dtype)
    return call(array, "to", getattr(sys.modules["torch"], _dtype.encode(dtype)[0]))


def why_missing(array: Any, name: str) -> str | None:
    """What to do for an attribute that NumPy's arrays have, and an Array does not; None for any other name."""
    numpy = sys.modules.get("numpy")
    if numpy is None or name.startswith("_") or not hasattr(numpy.ndarray, name):
        return None
    instead = "numpy()" if on_host(array) else "cupy.asarray(array) or torch.from_dlpack(array)"
    return f"a gpushm.Array has no {name!r}, for it is memory with a shape: {instead} has it, without a copy"


class Operators:
    """What an Array has of a ndarray's arithmetic."""

    __slots__ = ()

    # ---- operators ----

    def __add__(self, other: object) -> Any:
        return compute(operator.add, self, other)

    def __radd__(self, other: object) -> Any:
        return compute(operator.add, self, other, reflected=True)

    def __iadd__(self, other: object) -> Self:
        return update(operator.iadd, self, other)

    def __sub__(self, other: object) -> Any:
        return compute(operator.sub, self, other)

    def __rsub__(self, other: object) -> Any:
        return compute(operator.sub, self, other, reflected=True)

    def __isub__(self, other: object) -> Self:
        return update(operator.isub, self, other)

    def __mul__(self, other: object) -> Any:
        return compute(operator.mul, self, other)

    def __rmul__(self, other: object) -> Any:
        return compute(operator.mul, self, other, reflected=True)

    def __imul__(self, other: object) -> Self:
        return update(operator.imul, self, other)

    def __matmul__(self, other: object) -> Any:
        return compute(operator.matmul, self, other)

    def __rmatmul__(self, other: object) -> Any:
        return compute(operator.matmul, self, other, reflected=True)

    def __imatmul__(self, other: object) -> Self:
        return update(operator.imatmul, self, other)

    def __truediv__(self, other: object) -> Any:
        return compute(operator.truediv, self, other)

    def __rtruediv__(self, other: object) -> Any:
        return compute(operator.truediv, self, other, reflected=True)

    def __itruediv__(self, other: object) -> Self:
        return update(operator.itruediv, self, other)

    def __floordiv__(self, other: object) -> Any:
        return compute(operator.floordiv, self, other)

    def __rfloordiv__(self, other: object) -> Any:
        return compute(operator.floordiv, self, other, reflected=True)

    def __ifloordiv__(self, other: object) -> Self:
        return update(operator.ifloordiv, self, other)

    def __mod__(self, other: object) -> Any:
        return compute(operator.mod, self, other)

    def __rmod__(self, other: object) -> Any:
        return compute(operator.mod, self, other, reflected=True)

    def __imod__(self, other: object) -> Self:
        return update(operator.imod, self, other)

    def __pow__(self, other: object) -> Any:
        return compute(operator.pow, self, other)

    def __rpow__(self, other: object) -> Any:
        return compute(operator.pow, self, other, reflected=True)

    def __ipow__(self, other: object) -> Self:
        return update(operator.ipow, self, other)

    def __and__(self, other: object) -> Any:
        return compute(operator.and_, self, other)

    def __rand__(self, other: object) -> Any:
        return compute(operator.and_, self, other, reflected=True)

    def __iand__(self, other: object) -> Self:
        return update(operator.iand, self, other)

    def __or__(self, other: object) -> Any:
        return compute(operator.or_, self, other)

    def __ror__(self, other: object) -> Any:
        return compute(operator.or_, self, other, reflected=True)

    def __ior__(self, other: object) -> Self:
        return update(operator.ior, self, other)

    def __xor__(self, other: object) -> Any:
        return compute(operator.xor, self, other)

    def __rxor__(self, other: object) -> Any:
        return compute(operator.xor, self, other, reflected=True)

    def __ixor__(self, other: object) -> Self:
        return update(operator.ixor, self, other)

    def __lshift__(self, other: object) -> Any:
        return compute(operator.lshift, self, other)

    def __rlshift__(self, other: object) -> Any:
        return compute(operator.lshift, self, other, reflected=True)

    def __ilshift__(self, other: object) -> Self:
        return update(operator.ilshift, self, other)

    def __rshift__(self, other: object) -> Any:
        return compute(operator.rshift, self, other)

    def __rrshift__(self, other: object) -> Any:
        return compute(operator.rshift, self, other, reflected=True)

    def __irshift__(self, other: object) -> Self:
        return update(operator.irshift, self, other)

    def __neg__(self) -> Any:
        return compute(operator.neg, self)

    def __pos__(self) -> Any:
        return compute(operator.pos, self)

    def __abs__(self) -> Any:
        return compute(operator.abs, self)

    def __invert__(self) -> Any:
        return compute(operator.invert, self)

    def __lt__(self, other: object) -> Any:
        return compute(operator.lt, self, other)

    def __le__(self, other: object) -> Any:
        return compute(operator.le, self, other)

    def __gt__(self, other: object) -> Any:
        return compute(operator.gt, self, other)

    def __ge__(self, other: object) -> Any:
        return compute(operator.ge, self, other)

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
        return self.copy_to_host().item()  # type: ignore[attr-defined]

    def __bool__(self) -> bool:
        return bool(self.copy_to_host())  # type: ignore[attr-defined]

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def __contains__(self, value: object) -> bool:
        return bool((self == value).any())

    # ---- methods ----

    def tolist(self) -> Any:
        """The elements as (nested) lists of Python's numbers."""
        return self.copy_to_host().tolist()  # type: ignore[attr-defined]

    def copy(self) -> Any:
        """A copy in memory of the library's, which belongs to no buffer: a numpy.ndarray, or on a GPU a cupy.ndarray or
        a torch.Tensor. gpushm.to_device(array) makes a copy in a buffer.
        """
        return call(self, "copy")

    def astype(self, dtype: DTypeLike) -> Any:
        """A copy with another dtype, as copy()."""
        return converted(self, dtype)

    def sum(self, *arguments: object, **words: object) -> Any:
        """The library's sum(); the same holds for the other methods of this name."""
        return call(self, "sum", *arguments, **words)

    def prod(self, *arguments: object, **words: object) -> Any:
        """The library's prod()."""
        return call(self, "prod", *arguments, **words)

    def mean(self, *arguments: object, **words: object) -> Any:
        """The library's mean()."""
        return call(self, "mean", *arguments, **words)

    def min(self, *arguments: object, **words: object) -> Any:
        """The library's min(); PyTorch's amin()."""
        return call(self, "min", *arguments, **words)

    def max(self, *arguments: object, **words: object) -> Any:
        """The library's max(); PyTorch's amax()."""
        return call(self, "max", *arguments, **words)

    def argmin(self, *arguments: object, **words: object) -> Any:
        """The library's argmin()."""
        return call(self, "argmin", *arguments, **words)

    def argmax(self, *arguments: object, **words: object) -> Any:
        """The library's argmax()."""
        return call(self, "argmax", *arguments, **words)

    def any(self, *arguments: object, **words: object) -> Any:
        """The library's any()."""
        return call(self, "any", *arguments, **words)

    def all(self, *arguments: object, **words: object) -> Any:
        """The library's all()."""
        return call(self, "all", *arguments, **words)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            """Called for attributes that an Array does not have, and for getters that raise AttributeError."""
            why = why_missing(self, name)
            if why is not None:
                raise AttributeError(why)
            return object.__getattribute__(self, name)
