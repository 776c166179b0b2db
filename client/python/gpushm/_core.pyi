# SPDX-License-Identifier: MIT
# The types of the extension; its docstrings describe it. What does not change is Final, as nobody can set it.

from collections.abc import Awaitable, Coroutine, Iterator, Mapping, Sequence
from os import PathLike
from types import ModuleType
from typing import Any, Final, Self, SupportsIndex, TypeVar, final, overload

from _typeshed import ReadableBuffer, WriteableBuffer, structseq
from typing_extensions import Buffer as SupportsBuffer
from typing_extensions import CapsuleType, disjoint_base

from ._array import Array as _Array
from ._array import Buffer as _Buffer
from ._typing import (
    IO,
    Access,
    Attrs,
    Delivery,
    Device,
    DType,
    DTypeLike,
    Follow,
    HasShapeAndDType,
    Key,
    Kind,
    Order,
    Path,
    Progress,
    Published,
    Shape,
    Source,
    Sources,
    State,
    StreamState,
    Via,
    What,
)
from ._typing import GraphExec as _GraphExec
from ._typing import Stream as _CudaStream

_T = TypeVar("_T")

library_version: Final[str]

class Error(OSError):
    code: str

class NotFound(Error, FileNotFoundError): ...
class Exists(Error, FileExistsError): ...
class AccessDenied(Error, PermissionError): ...
class Timeout(Error, TimeoutError): ...
class NotPublished(Error, BlockingIOError): ...
class ReadOnly(Error, ValueError): ...
class Dirty(Error): ...
class PoolFull(Error, MemoryError): ...
class TooLarge(Error, MemoryError): ...
class LimitReached(Error): ...
class DeviceFailed(Error): ...
class DriverError(Error): ...
class DaemonGone(Error, ConnectionError): ...
class ForkError(Error, RuntimeError): ...
class InUse(Error, BufferError): ...
class StateError(Error): ...
class BadArgument(Error, ValueError): ...
class LayoutError(Error, ValueError): ...
class NotSupported(Error, NotImplementedError): ...
class OutOfMemory(Error, MemoryError): ...
class BadContents(Error, ValueError): ...
class StreamEnded(Error, EOFError): ...
class ProducerDied(Error): ...
class ReaderDropped(Error): ...
class UnpublishedWarning(RuntimeWarning): ...
class NotKeptWarning(RuntimeWarning): ...

@final
class Holder(structseq[Any], tuple[Any, ...]):
    pid: Final[int]
    uid: Final[int]
    command: Final[str]
    access: Final[Access]
    since: Final[float]
    suspect: Final[bool]
    lease: Final[int]

@final
class BufferInfo(structseq[Any], tuple[Any, ...]):
    name: Final[str]
    pool: Final[str]
    kind: Final[Kind]
    state: Final[State]
    nbytes: Final[int]
    allocated: Final[int]
    arrays: Final[int]
    mode: Final[int]
    uid: Final[int]
    gid: Final[int]
    transient: Final[bool]
    dirty: Final[bool]
    dirty_pid: Final[int | None]
    dirty_uid: Final[int | None]
    dirty_command: Final[str | None]
    dirty_since: Final[float | None]
    created: Final[float]
    published: Final[float | None]
    readers: Final[int]
    writers: Final[int]
    suspects: Final[int]
    id: Final[int]
    digest: Final[int]
    attrs: Final[dict[str, bytes]]
    holders: Final[list[Holder]]
    kept: Final[bool]
    opens: Final[int]

@final
class PoolInfo(structseq[Any], tuple[Any, ...]):
    name: Final[str]
    kind: Final[Kind]
    device: Final[int | None]
    device_name: Final[str | None]
    device_uuid: Final[str | None]
    pci_id: Final[str | None]
    numa_node: Final[int | None]
    nbytes: Final[int]
    used: Final[int]
    pending: Final[int]
    suspect: Final[int]
    max_buffer: Final[int]
    granularity: Final[int]
    buffers: Final[int]
    failed: Final[bool]
    why: Final[str | None]
    is_default: Final[bool]
    allowed: Final[bool]

@final
class Usage(structseq[int], tuple[int, ...]):
    uid: Final[int]
    nbytes: Final[int]
    nbytes_max: Final[int]
    buffers: Final[int]
    buffers_max: Final[int]
    leases: Final[int]
    leases_max: Final[int]
    peers: Final[int]
    peers_max: Final[int]

@final
class Status(structseq[Any], tuple[Any, ...]):
    software: Final[str]
    pid: Final[int]
    uptime: Final[float]
    peers: Final[int]
    buffers: Final[int]
    leases: Final[int]
    suspects: Final[int]
    waiting: Final[int]
    requests: Final[int]
    refused: Final[int]
    violations: Final[int]
    fds: Final[int]
    fds_max: Final[int]
    pools_failed: Final[int]
    usage: Final[list[Usage]]
    refusals: Final[dict[str, int]]
    retained: Final[int]
    retained_nbytes: Final[int]
    kept: Final[bool]

@final
class LoggedEvent(structseq[Any], tuple[Any, ...]):
    type: Final[str]
    time: Final[float]
    number: Final[int]
    name: Final[str | None]
    former: Final[str | None]
    buffer: Final[int | None]
    owner: Final[int | None]
    nbytes: Final[int]
    pool: Final[str | None]
    state: Final[State | None]
    access: Final[Access | None]
    uid: Final[int | None]
    pid: Final[int]
    command: Final[str | None]
    verb: Final[str | None]
    code: Final[str | None]
    text: Final[str | None]

@final
class Event(structseq[Any], tuple[Any, ...]):
    what: Final[What]
    name: Final[str]
    buffer: Final[int]
    previous: Final[int | None]

@final
class StreamStats(structseq[Any], tuple[Any, ...]):
    state: Final[StreamState]
    newest: Final[int]
    readers: Final[int]
    stalls: Final[int]
    stalled: Final[float]
    taken: Final[int]
    skipped: Final[int]
    lag: Final[int]
    held: Final[int]

@final
class StreamReader(structseq[Any], tuple[Any, ...]):
    reader: Final[int]
    follow: Final[Follow]
    max_held: Final[int]
    dropped: Final[bool]
    suspect: Final[bool]
    pid: Final[int | None]
    uid: Final[int | None]
    command: Final[str | None]
    joined: Final[float]
    lag: Final[int]
    taken: Final[int]
    skipped: Final[int]
    held: Final[int]
    oldest: Final[int | None]
    oldest_held: Final[float]

@final
class StreamInfo(structseq[Any], tuple[Any, ...]):
    name: Final[str]
    pool: Final[str]
    id: Final[int]
    uid: Final[int]
    state: Final[StreamState]
    slots: Final[int]
    slot_nbytes: Final[int]
    readers: Final[list[StreamReader]]
    readers_max: Final[int]
    delivery: Final[Delivery]
    keep_queue: Final[bool]
    limit: Final[float | None]
    producers: Final[int]
    pid: Final[int | None]
    command: Final[str | None]
    newest: Final[int]
    newest_time: Final[float]
    now: Final[float]
    stalls: Final[int]
    stalled: Final[float]
    waiting: Final[float]
    queued: Final[int]
    redone: Final[int]
    lost: Final[int]
    dropped: Final[int]

@disjoint_base
class Array(SupportsBuffer):
    shape: Final[tuple[int, ...]]
    strides: Final[tuple[int, ...]]
    ndim: Final[int]
    size: Final[int]
    nbytes: Final[int]
    itemsize: Final[int]
    offset: Final[int]
    dtype: Final[DType]
    dtype_name: Final[str]
    descr: Final[str | None]
    typestr: Final[str | None]
    name: Final[str]
    array_name: Final[str]
    pool: Final[str]
    kind: Final[Kind]
    state: Final[State]
    device: Final[int | None]
    device_ptr: Final[int | None]
    host_ptr: Final[int | None]
    dirty: Final[bool]
    lost: Final[bool]
    access: Final[Access]
    readonly: Final[bool]
    anonymous: Final[bool]
    closed: Final[bool]
    owns_buffer: Final[bool]
    buffer: Final[_Buffer]
    T: Final[_Array]
    __cuda_array_interface__: Final[dict[str, Any]]
    def close(self) -> None: ...
    def discard(self) -> None: ...
    def publish(self, state: Published = "sealed", /) -> None: ...
    def publish_as(self, name: str, state: Published = "sealed", *, replace: bool = False) -> None: ...
    def reshape(self, *shape: Shape, order: Order = "C") -> _Array: ...
    def ravel(self, order: Order = "C") -> _Array: ...
    def transpose(self, *axes: Shape | None) -> _Array: ...
    def split(self, section: int) -> list[_Array]: ...
    def view(self, dtype: DTypeLike) -> _Array: ...
    def is_c_contiguous(self) -> bool: ...
    def is_f_contiguous(self) -> bool: ...
    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> CapsuleType: ...
    def __dlpack_device__(self) -> tuple[int, int]: ...
    def _read_into(self, out: WriteableBuffer, stream: _CudaStream | None = None, /) -> None: ...
    def _write_from(self, data: ReadableBuffer, stream: _CudaStream | None = None, /) -> None: ...
    def _span(self) -> tuple[_Array, int]: ...
    def _wait_for_others(self, stream: int, /) -> None: ...
    def __len__(self) -> int: ...
    def __getitem__(self, key: Key, /) -> _Array: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def __buffer__(self, flags: int, /) -> memoryview: ...

@disjoint_base
class Buffer:
    name: Final[str]
    pool: Final[str]
    kind: Final[Kind]
    state: Final[State]
    id: Final[int]
    nbytes: Final[int]
    digest: Final[int]
    access: Final[Access]
    readonly: Final[bool]
    dirty: Final[bool]
    lost: Final[bool]
    device: Final[int | None]
    device_ptr: Final[int | None]
    host_ptr: Final[int | None]
    anonymous: Final[bool]
    closed: Final[bool]
    connection: Final[Connection]
    _of_stream: Final[bool]
    def keys(self) -> list[str]: ...
    def values(self) -> list[_Array]: ...
    def items(self) -> list[tuple[str, _Array]]: ...
    @overload
    def get(self, name: str, default: None = None, /) -> _Array | None: ...
    @overload
    def get(self, name: str, default: _T, /) -> _Array | _T: ...
    def close(self) -> None: ...
    def discard(self) -> None: ...
    def publish(self, state: Published = "sealed", /) -> None: ...
    def publish_as(self, name: str, state: Published = "sealed", *, replace: bool = False) -> None: ...
    def set_attrs(self, attrs: Attrs, /) -> None: ...
    def describe(self, arrays: Mapping[str, tuple[Shape, DTypeLike, Shape | None, SupportsIndex]], /) -> None: ...
    @overload
    def attr(self, key: str, default: None = None, /) -> bytes | None: ...
    @overload
    def attr(self, key: str, default: _T, /) -> bytes | _T: ...
    def array(self, shape: Shape, dtype: DTypeLike, *, strides: Shape | None = None, offset: int = 0) -> _Array: ...
    def __getitem__(self, name: str, /) -> _Array: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class Watch:
    closed: Final[bool]
    def add(self, what: str | Array | Buffer, /) -> None: ...
    def next(self, timeout: float | None = None) -> Event: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def _hold(self) -> None: ...
    def _release(self) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Event: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Event]: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class Frame:
    seq: Final[int]
    time: Final[float | None]
    skipped: Final[int]
    slot: Final[int]
    meta: Any
    closed: Final[bool]
    def keys(self) -> list[str]: ...
    def resize(self, name: str, shape: Shape, /) -> _Array: ...
    def publish(self, stream: _CudaStream | None = ...) -> None: ...
    def cancel(self) -> None: ...
    def release(self, stream: _CudaStream | None = ...) -> None: ...
    def ok(self) -> bool: ...
    def keep(self) -> Self: ...
    def __getitem__(self, name: str, /) -> _Array: ...
    def __contains__(self, name: object, /) -> bool: ...
    def __iter__(self) -> Iterator[str]: ...
    def __len__(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class GraphFrame:
    closed: Final[bool]
    def release(self, stream: _CudaStream, /) -> None: ...
    def offset(self, array: str, /) -> int: ...
    def next(self, graph: _GraphExec, *, timeout: float | None = ...) -> Frame: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

@disjoint_base
class _Side:
    name: Final[str]
    slots: Final[int]
    buffer: Final[_Buffer]
    connection: Final[Connection]
    closed: Final[bool]
    def stats(self) -> StreamStats: ...
    def fileno(self) -> int: ...
    def close(self) -> None: ...
    def _hold(self) -> None: ...
    def _release(self) -> None: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class Stream(_Side):
    def frame(self, stream: _CudaStream | None = None, *, timeout: float | None = None) -> Frame: ...
    def frame_async(
        self, stream: _CudaStream | None = None, *, timeout: float | None = None
    ) -> Coroutine[Any, Any, Frame]: ...
    def graph(self, stream: _CudaStream, where: SupportsIndex = 0) -> GraphFrame: ...
    def __enter__(self) -> Self: ...

@final
class Reader(_Side):
    joined: Final[bool]
    def next(self, timeout: float | None = ..., *, stream: _CudaStream | None = ...) -> Frame: ...
    def next_async(self, timeout: float | None = ...) -> Coroutine[Any, Any, Frame]: ...
    def graph(self, stream: _CudaStream, where: SupportsIndex = 0) -> GraphFrame: ...
    def _take_now(self) -> Frame | None: ...
    def _join_now(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Frame: ...
    def __aiter__(self) -> Self: ...
    def __anext__(self) -> Awaitable[Frame]: ...
    def __enter__(self) -> Self: ...
    def __aenter__(self) -> Awaitable[Self]: ...
    def __aexit__(self, *raised: object) -> Awaitable[None]: ...

@disjoint_base
class Connection:
    socket: Final[str | None]
    closed: Final[bool]
    def __new__(cls, socket: str | PathLike[str] | None = None) -> Self: ...
    def close(self) -> None: ...
    def fileno(self) -> int: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...
    def create(
        self,
        name: str | None,
        shape: Shape,
        dtype: DTypeLike = "uint8",
        *,
        pool: str | None = None,
        mode: int = 0o600,
        order: Order = "C",
        strides: Shape | None = None,
        transient: bool = False,
        attrs: Attrs | None = None,
        wait: float | None = 0,
        gid: int | None = None,
        device: Device | None = None,
    ) -> _Array: ...
    def open_or_create(
        self,
        name: str,
        shape: Shape,
        dtype: DTypeLike = "uint8",
        *,
        access: Access = "r",
        timeout: float | None = None,
        pool: str | None = None,
        mode: int = 0o600,
        transient: bool = False,
        attrs: Attrs | None = None,
        gid: int | None = None,
        device: Device | None = None,
        refuse_dirty: bool = False,
    ) -> _Array: ...
    def create_many(
        self,
        name: str | None,
        arrays: Mapping[str, tuple[Shape, DTypeLike] | HasShapeAndDType | Source],
        *,
        pool: str | None = None,
        mode: int = 0o600,
        transient: bool = False,
        attrs: Attrs | None = None,
        wait: float | None = 0,
        gid: int | None = None,
        device: Device | None = None,
        stream: _CudaStream | None = None,
        nbytes: SupportsIndex = 0,
    ) -> _Buffer: ...
    def open(
        self,
        name: str,
        access: Access = "r",
        timeout: float | None = 0,
        *,
        array: str | None = None,
        dtype: DTypeLike | None = None,
        shape: Shape | None = None,
        strides: Shape | None = None,
        offset: int | None = None,
        device: Device | None = None,
        refuse_dirty: bool = False,
    ) -> _Array: ...
    def open_many(
        self,
        name: str,
        access: Access = "r",
        timeout: float | None = 0,
        *,
        device: Device | None = None,
        refuse_dirty: bool = False,
    ) -> _Buffer: ...
    def stream(
        self,
        name: str,
        arrays: Mapping[str, tuple[Shape, DTypeLike] | HasShapeAndDType],
        *,
        slots: int = 8,
        readers: int = 8,
        limit: float | None = 10.0,
        delivery: Delivery = "at-least-once",
        keep_queue: bool = False,
        adopt: bool = False,
        keep: bool = False,
        pool: str | None = None,
        mode: int = 0o600,
        attrs: Attrs | None = None,
        wait: float | None = 0,
        gid: int | None = None,
        device: Device | None = None,
        spin: float = 0,
    ) -> Stream: ...
    def follow(
        self,
        name: str,
        how: Follow = "latest",
        *,
        max_held: int = 1,
        stream: _CudaStream | None = None,
        timeout: float | None = None,
        wait_for_producer: bool = False,
        device: Device | None = None,
        spin: float = 0,
    ) -> Reader: ...
    def streams(self, prefix: str | None = None, /) -> list[StreamInfo]: ...
    def wait(self, name: str, timeout: float | None = None) -> None: ...
    def unlink(self, name: str, /) -> None: ...
    def rename(self, name: str, new: str, /, *, replace: bool = False) -> None: ...
    def clean(self, name: str, /) -> None: ...
    def flush(self, pool: str | None = None, /) -> None: ...
    def ls(self, prefix: str | None = None, *, holders: bool = False) -> list[BufferInfo]: ...
    def stat(self, name: str, *, holders: bool = False) -> BufferInfo: ...
    def pools(self) -> list[PoolInfo]: ...
    def status(self) -> Status: ...
    def watch(self, /, *what: str | Array | Buffer) -> Watch: ...
    def _events(
        self, after: int, types: str | None, timeout: float | None, /
    ) -> tuple[list[LoggedEvent], int, int]: ...
    def load(
        self,
        sources: Sources,
        name: str,
        *,
        pool: str | None = None,
        mode: int = 0o600,
        transient: bool = False,
        attrs: Attrs | None = None,
        wait: float | None = 0,
        gid: int | None = None,
        device: Device | None = None,
        only: str | Sequence[str] | None = None,
        strip: str | None = None,
        sha256: Path | None = None,
        verify: bool = False,
        if_missing: bool = False,
        replace: bool = False,
        timeout: float | None = None,
        io: IO = "auto",
        drop_cache: bool = False,
        token_file: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        patience: int = 0,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> _Buffer: ...
    def pull(
        self,
        source: str,
        name: str | None = None,
        *,
        pool: str | None = None,
        mode: int = 0o600,
        transient: bool = False,
        attrs: Attrs | None = None,
        wait: float | None = 0,
        gid: int | None = None,
        device: Device | None = None,
        verify: bool = False,
        if_missing: bool = False,
        replace: bool = False,
        timeout: float | None = None,
        via: Via = "https",
        token_file: Path | None = None,
        ca: Path | None = None,
        cert: Path | None = None,
        key: Path | None = None,
        patience: int = 0,
        threads: int = 0,
        progress: Progress | None = None,
    ) -> _Buffer: ...
    def save(
        self,
        buffer: str | Array | Buffer,
        path: Path,
        *,
        metadata: Mapping[str, str] | None = None,
        threads: int = 0,
        progress: Progress | None = None,
        shard_size: int = 0,
    ) -> None: ...
    def verify(self, buffer: str | Array | Buffer, *, progress: Progress | None = None) -> str: ...

# The functions of the module are the methods of the common connection of the process.
_common: Connection
create = _common.create
create_many = _common.create_many
open = _common.open
open_many = _common.open_many
open_or_create = _common.open_or_create
stream = _common.stream
follow = _common.follow
streams = _common.streams
wait = _common.wait
unlink = _common.unlink
rename = _common.rename
clean = _common.clean
flush = _common.flush
ls = _common.ls
stat = _common.stat
pools = _common.pools
status = _common.status
watch = _common.watch
_events = _common._events
load = _common.load
pull = _common.pull
save = _common.save
verify = _common.verify

def pull_wait(
    source: str,
    content: str | bytes | None = None,
    *,
    timeout: float | None = None,
    token_file: Path | None = None,
    ca: Path | None = None,
    cert: Path | None = None,
    key: Path | None = None,
) -> None: ...
def flush_cleanup() -> None: ...
def set_cleanup_limits(max_count: int, max_ratio: float) -> None: ...
def pending_cleanup() -> tuple[int, int]: ...
def _defer_cleanup() -> None: ...
def _resume_cleanup() -> None: ...
def _disconnect() -> None: ...
def _close_streams() -> None: ...
def _report_unpublished() -> None: ...
def _opened() -> list[_Buffer]: ...
def _load_key(sources: Sources, /) -> str: ...
def _stream(stream: _CudaStream | None, /) -> int | None: ...
def _register(
    array: type[Array],
    buffer: type[Buffer],
    dtype: ModuleType,
    driver: ModuleType,
    asyncio: ModuleType,
    libraries: ModuleType,
    /,
) -> None: ...
def _current_device() -> int | None: ...
def _copy_many(copies: list[tuple[Any, ...]], stream: _CudaStream | None, /) -> None: ...
def _arena_new(address: int, nbytes: int, device: int, /) -> int: ...
def _arena_use(id: int, /) -> int: ...
def _arena_take(id: int, nbytes: int, /) -> int | None: ...
def _arena_stat(id: int, /) -> tuple[int, int, int, int, int]: ...
def _arena_drop(id: int, /) -> None: ...
def _dtype_bits(name: str, /) -> int: ...
def _copy_of(array: Array, tensor: object, api: CapsuleType, /) -> tuple[Any, ...] | None: ...
def _tensors(buffer: Buffer, names: list[str], api: CapsuleType, /) -> list[Any]: ...
def _read_dlpack(
    capsule: CapsuleType, /
) -> tuple[str, tuple[int, ...], tuple[int, ...] | None, int, tuple[int, int], bool]: ...
