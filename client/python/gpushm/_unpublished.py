# SPDX-License-Identifier: MIT
"""What a user sees when a buffer is closed too early: what still uses it; or that its contents are gone, because it
ended before it was published, or may be lost.

The warning shows the line that created the buffer, also where the collector or the end of the program closes it. It is
a RuntimeWarning, as asyncio's "coroutine was never awaited" is: Python hides a ResourceWarning unless it is asked for.
"""

import sys
import warnings
from types import FrameType
from typing import Any

_VIEWS_MAX = 3  # that a text lists

_Place = tuple[str, int, str | None]


class UnpublishedWarning(RuntimeWarning):
    """A buffer was closed before it was published, so its contents are gone."""

    __module__ = "gpushm.errors"


class NotKeptWarning(RuntimeWarning):
    """A buffer does not survive the daemon's death, because all places for such buffers are taken."""

    __module__ = "gpushm.errors"


def place() -> _Place | None:
    """The innermost place in the program outside of this package: file, line and the module's name."""
    frame: FrameType | None = sys._getframe()
    while frame and str(frame.f_globals.get("__name__")).startswith("gpushm."):
        frame = frame.f_back
    return (frame.f_code.co_filename, frame.f_lineno, frame.f_globals.get("__name__")) if frame else None


def warn(name: str, at: _Place | None) -> None:
    """Warns that the contents of the buffer, which was made there, are gone."""
    file, line, module = at or ("<unknown>", 0, None)
    # Here Python notes that it has shown a warning of that module.
    found = sys.modules.get(module) if module else None
    registry = vars(found).setdefault("__warningregistry__", {}) if found else None
    text = (
        f'buffer "{name}" was closed before it was published, so its contents are gone: call publish() first, or '
        "discard() if that is meant"
    )
    warnings.warn_explicit(text, UnpublishedWarning, file, line, module or "<unknown>", registry)


def users(views: list[Any], arrays: int, memoryviews: int, tensors: int, calls: int) -> str:
    """'2 views ("w" (3, 4) float32; ...), 1 DLPack tensor'. views: Arrays."""
    listed = [f'"{v.array_name}" {v.shape} {v.dtype_name}' for v in views[:_VIEWS_MAX] if not v.closed]
    listed = [text.removeprefix('"" ') for text in listed] + ["..."] * (len(views) > _VIEWS_MAX)
    after = {"view": f" ({'; '.join(listed)})", "call": " of another thread"}
    counts = {
        "view": len(views), "NumPy array": arrays, "memoryview": memoryviews, "DLPack tensor": tensors, "call": calls,
    }
    return ", ".join(f"{n} {what}{'' if n == 1 else 's'}{after.get(what, '')}" for what, n in counts.items() if n)


def warn_not_kept(text: str) -> None:
    warnings.warn(text, NotKeptWarning, stacklevel=2)
