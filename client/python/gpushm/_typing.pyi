# SPDX-License-Identifier: MIT
# The types that the package's annotations name. There is no such module at run time, and nobody needs one: annotations
# are not evaluated. NumPy's types are Any where NumPy is not installed.

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from types import EllipsisType
from typing import Any, Literal, Protocol, SupportsIndex, SupportsInt, TypeAlias, TypedDict

import numpy as np
import numpy.typing as npt

from ._array import Array as Array
from ._array import Buffer as Buffer
from ._array import Record as Record

Access: TypeAlias = Literal["r", "r+", "c"]
Kind: TypeAlias = Literal["host", "pinned", "vmm", "mempool"]
Order: TypeAlias = Literal["C", "F"]
State: TypeAlias = Literal["filling", "sealed", "shared"]
Published: TypeAlias = Literal["sealed", "shared"]
What: TypeAlias = Literal["published", "dirty", "clean", "unlinked", "gone", "restarted", "unknown"]

Follow: TypeAlias = Literal["every", "latest", "share"]
Delivery: TypeAlias = Literal["at-least-once", "at-most-once"]
StreamState: TypeAlias = Literal["running", "ended", "orphaned"]
Residence: TypeAlias = Literal["resident", "twin", "source"]

IO: TypeAlias = Literal["auto", "cached", "direct"]
Via: TypeAlias = Literal["https", "nixl"]

Attrs: TypeAlias = Mapping[str, bytes | str]
Device: TypeAlias = int | Literal["current"]
Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex]
# A place in an array: integers select elements, all else makes views.
ViewKey: TypeAlias = slice | EllipsisType | None
Key: TypeAlias = SupportsIndex | ViewKey | tuple[SupportsIndex | ViewKey, ...]

NDArray: TypeAlias = npt.NDArray[Any]
HostArray: TypeAlias = Array | NDArray
# A name, where neither NumPy nor ml_dtypes has the type: rare, so that programs need not tell them apart.
DType: TypeAlias = np.dtype[Any] | Any

class TorchDType(Protocol):
    @property
    def is_floating_point(self) -> bool: ...
    @property
    def itemsize(self) -> int: ...

DTypeLike: TypeAlias = npt.DTypeLike | TorchDType

Path: TypeAlias = str | bytes | PathLike[str] | PathLike[bytes]
Sources: TypeAlias = Path | Sequence[Path]
# Bytes that are done, and all.
Progress: TypeAlias = Callable[[int, int], object]

# ---- objects of other libraries ----

class HasCudaStream(Protocol):
    @property
    def __cuda_stream__(self) -> object: ...

class TorchStream(Protocol):
    @property
    def cuda_stream(self) -> int: ...

class CupyStream(Protocol):
    @property
    def ptr(self) -> int: ...

class NumbaStream(Protocol):
    @property
    def handle(self) -> object: ...

CudaStream: TypeAlias = int | HasCudaStream | TorchStream | CupyStream | NumbaStream

class TorchGraph(Protocol):
    def raw_cuda_graph(self) -> int: ...
    def raw_cuda_graph_exec(self) -> int: ...

class CudaCoreGraph(Protocol):
    @property
    def handle(self) -> SupportsInt: ...

# An instantiated CUDA graph.
GraphExec: TypeAlias = SupportsInt | TorchGraph | CudaCoreGraph

class SupportsDLPack(Protocol):
    def __dlpack_device__(self) -> tuple[Any, Any]: ...

class SupportsCudaArrayInterface(Protocol):
    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]: ...

# What can be copied into an Array.
Source: TypeAlias = npt.ArrayLike | Array | Record | SupportsDLPack | SupportsCudaArrayInterface

class HasShapeAndDType(Protocol):
    @property
    def shape(self) -> Sequence[SupportsIndex]: ...
    @property
    def dtype(self) -> Any: ...

# ---- keywords ----

class CreateOptions(TypedDict, total=False):
    pool: str | None
    mode: int
    order: Order
    strides: Shape | None
    transient: bool
    attrs: Attrs | None
    wait: float | None
    gid: int | None
    device: Device | None

class LikeOptions(CreateOptions, total=False):
    dtype: DTypeLike

class OpenOptions(TypedDict, total=False):
    array: str | None
    dtype: DTypeLike | None
    shape: Shape | None
    strides: Shape | None
    offset: int | None
    device: Device | None
    refuse_dirty: bool
