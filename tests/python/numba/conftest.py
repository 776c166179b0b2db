# SPDX-License-Identifier: MIT
"""For tests in which Numba has gpushm's memory manager. Numba keeps a context, so that buffers alone are counted."""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator

import pytest

cuda = pytest.importorskip("numba.cuda")

import gpushm  # noqa: E402
import gpushm.numba  # noqa: E402

cuda.set_memory_manager(gpushm.numba.MemoryManager)


@pytest.fixture
def manager() -> Iterator[gpushm.numba.MemoryManager]:
    """The current context's, which has no memory yet."""
    yield cuda.current_context().memory_manager


@pytest.fixture(autouse=True)
def nothing_is_left(warmed_up: None) -> Iterator[None]:
    """Checks that all memory is given back with the manager's reset()."""
    yield
    # The traceback of a failed test keeps its frames, and they keep arrays.
    sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    cuda.current_context().memory_manager.reset()
    gc.collect()
    end = time.monotonic() + 10
    while (left := gpushm.ls()) and time.monotonic() < end:
        pass
    assert left == []
