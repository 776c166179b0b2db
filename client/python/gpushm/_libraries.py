# SPDX-License-Identifier: MIT
"""Other libraries of this process: which of them ignore that memory is read-only, and on which GPU and which streams a
thread works with them.

Nothing here imports a library: one that is not imported yet does nothing with an Array.
"""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Iterator
from types import FrameType
from typing import Any

from . import _core, _driver


class ReadOnlyWarning(UserWarning):
    """A library has got read-only memory as memory that it may write to."""

    __module__ = "gpushm.errors"


class DeviceWarning(UserWarning):
    """A buffer is mapped for another GPU than the one that the thread works on."""

    __module__ = "gpushm.errors"


# What has been said: once in a process is enough. The core looks here before it calls warn_read_only().
_said: set[tuple[object, ...]] = set()


def say(key: tuple[object, ...], text: str, category: type[Warning], level: int) -> None:
    """Warns of the `level`-th frame above the caller of say(). A filter may make the warning an error: that is raised
    each time.
    """
    if key not in _said:
        warnings.warn(f"{text} This is said once.", category, level + 2)
        _said.add(key)


def warn_read_only(array: Any, words: dict[str, Any] | None) -> None:
    """Called where DLPack's flag says that an array is read-only; `words` are the keywords that __dlpack__() got."""
    library, level = _ignorer(words or {})
    if library is not None:
        _say_read_only(library, array, level)


def warn_shared(library: str, array: Any) -> None:
    """Called where the package itself makes a tensor of a read-only array for a program that does not know that."""
    _say_read_only(library, array, _programs_level())


def fate(kind: str) -> tuple[str, str]:
    """What a write to a sealed buffer does, and what to do instead, in a pool of that kind."""
    if kind not in _core._READ_ONLY:
        return "changes the buffer for all processes", "write to a copy"
    if kind in _core._ON_GPU:
        return "is an illegal memory access, after which this process can't use the GPU any more", "write to a copy"
    or_open = "" if kind in _core._BY_DRIVER else ', or open the buffer with access "c" (copy-on-write)'
    return "ends this process with SIGSEGV", "write to a copy" + or_open


def _say_read_only(library: str, array: Any, level: int) -> None:
    """level: how many frames the program is above the caller."""
    does, instead = fate(array.kind)
    text = f'{library} ignores that buffer "{array.name}" is read-only: a write to its tensor {does}; {instead}.'
    say((library, array.kind), text, ReadOnlyWarning, level + 1)


def _ignorer(words: dict[str, Any]) -> tuple[str | None, int]:
    """The library that asks for a tensor, if it ignores the flag, and how many frames the program is above
    warn_read_only().
    """
    frame: FrameType | None = sys._getframe(2)
    for level in range(1, 4):
        if frame is None:
            break
        if frame.f_code.co_name == "from_dlpack" and package_of(frame) == "torch":
            ours = frame.f_back is not None and package_of(frame.f_back) == "gpushm"
            return (None, 0) if ours else ("PyTorch", level + 1)
        frame = frame.f_back
    # CuPy's from_dlpack() is compiled and has no frame. These are its keywords; PyTorch and cuda.core give fewer, and
    # NumPy gives others.
    if "cupy" in sys.modules and set(words) == {"stream", "max_version", "copy"}:
        return "CuPy", 1
    return None, 0


def _programs_level() -> int:
    """How many frames the program is above the caller."""
    frame: FrameType | None = sys._getframe(2)
    level = 1
    while frame is not None and package_of(frame) == "gpushm":
        frame, level = frame.f_back, level + 1
    return level


def package_of(frame: FrameType) -> str:
    """The package that the frame\'s code is of."""
    return str(frame.f_globals.get("__name__", "")).partition(".")[0]


def warn_device(name: str, own: int, current: int) -> None:
    """Called where a buffer was opened or created without a choice of the GPU."""
    text = (
        f'buffer "{name}" is on GPU {own}, and this thread works on GPU {current}, whose kernels can\'t use it: '
        f'device="current" maps it for GPU {current}, device={own} for GPU {own} without this warning, and pool= '
        "chooses the GPU of a new buffer."
    )
    say((own, current), text, DeviceWarning, _programs_level())


# ---- streams ----

_DEFAULT_STREAMS = (0, 1, 2)  # the driver's numbers of them; each waits for the others
# Host memory that the driver knows for a section, and so copies to behind the program's back: id() of the Buffer.
registered: list[int] = []


def _current_streams(device: int | None) -> Iterator[int]:
    """The CUstreams on which PyTorch and CuPy queue this thread's work on that GPU; None: on the current one. Numba has
    no current stream besides the default one, and all streams that it makes wait for that.
    """
    torch = getattr(sys.modules.get("torch"), "cuda", None)
    # Without the question current_stream() would start CUDA.
    if torch is not None and torch.is_initialized():
        yield int(torch.current_stream(device).cuda_stream)
    cupy = getattr(sys.modules.get("cupy"), "cuda", None)
    if cupy is not None:
        yield int(cupy.get_current_stream(*(() if device is None else (device,))).ptr)


def wait_for_streams(device: int | None) -> None:
    """Called before a copy on the legacy default stream, which by itself waits for the default streams, and for streams
    that were not made to be independent of it, as Numba's.
    """
    for stream in _current_streams(device):
        if stream not in _DEFAULT_STREAMS:
            _driver.synchronize(stream, device)


def before_publish(buffer: _core.Buffer) -> None:
    """Waits for work that libgpushm's publish does not know: it waits for the GPU that has the memory mapped, and host
    memory has none.
    """
    if buffer.kind not in _core._BY_DRIVER:
        if id(buffer) in registered:
            _driver.synchronize_all()
    elif _core._current_device() is not None:
        for stream in _current_streams(None):
            _driver.synchronize(stream)


# ---- graphs ----


def graph_exec(graph: Any) -> int:
    """The CUgraphExec of an instantiated graph, for GraphFrame.next(). The CUgraph that was captured must still exist:
    the driver looks at its nodes.
    """
    if hasattr(graph, "raw_cuda_graph"):
        try:
            graph.raw_cuda_graph()
            return int(graph.raw_cuda_graph_exec())
        except RuntimeError as e:
            text = (
                "a PyTorch graph takes frames if it is a torch.cuda.CUDAGraph(keep_graph=True), which keeps what was "
                f"captured, after instantiate(): {str(e).partition(chr(10))[0]}"
            )
            raise _core.BadArgument(errno.EINVAL, text) from e
    handle = getattr(graph, "handle", graph)
    if hasattr(handle, "__int__") and not isinstance(handle, float):
        return int(handle)
    raise TypeError(
        "an instantiated graph is an int, a torch.cuda.CUDAGraph(keep_graph=True), a Graph of cuda.core or a "
        f"CUgraphExec of cuda.bindings, not {type(graph)}; CuPy's Graph destroys what was captured: take the int that "
        "cupy.cuda.runtime.graphInstantiate() returns"
    )
