# SPDX-License-Identifier: MIT
"""Streams. A stream argument is an int, an object with __cuda_stream__, or a stream of CuPy, PyTorch or Numba."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from . import _core, _driver


@contextmanager
def auto_synchronize(stream: Any = None) -> Iterator[Any]:
    """What is queued on the stream in this section is done when the section ends: Numba's
    stream.auto_synchronize(), for a stream of any library.

    Gives the stream. Also waits when the section ends with an exception, since memory may be in use by then.
    None: the legacy default stream.
    """
    handle = _core._stream(stream)
    try:
        yield stream
    finally:
        _driver.synchronize(handle)
