# SPDX-License-Identifier: MIT
"""Sections in which no close waits for a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from . import _core


@contextmanager
def defer_cleanup() -> Iterator[None]:
    """In this section closing a buffer on a GPU neither waits for the GPU nor asks the daemon: Numba's
    defer_cleanup().

    Sections nest, and count for the whole process. What was put off is done, oldest first, by
    flush_cleanup(), by the next close outside of sections, or where memory runs out. Buffers of host pools are
    always closed at once.
    """
    _core._defer_cleanup()
    try:
        yield
    finally:
        _core._resume_cleanup()
