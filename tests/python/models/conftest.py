# SPDX-License-Identifier: MIT
"""For tests with PyTorch and transformers: CPU tensors and host pools, and the GPU where there is one.

make check-torch runs them, and check-gpu-python on a GPU.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import gpushm
import pytest

try:
    import torch
    from gpushm.torch import _memory
except ImportError:
    collect_ignore_glob = ["test_*.py"]
    ON_GPU = False
else:
    ON_GPU = torch.cuda.is_available()

sys.path.insert(0, str(Path(__file__).parent))

DEVICES = ["cpu"] + ["cuda"] * ON_GPU


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    """The CPU, and the GPU if there is one."""
    return str(request.param)


@pytest.fixture
def gpu() -> str:
    """For tests that need a GPU."""
    if not ON_GPU:
        pytest.skip("no GPU")
    return "cuda"


@pytest.fixture(autouse=True)
def nothing_is_left(frozen: None) -> Iterator[None]:
    """Checks that each test leaves no buffer and no lease. PyTorch opens files when it likes: they are not counted."""
    yield
    # The traceback of a failed test keeps its frames, and they keep tensors.
    sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    _memory._end_unused()
    left = [buffer.name for buffer in gpushm.ls() if buffer.name]
    for name in left:
        gpushm.unlink(name)
    assert left == []
    # The daemon learns later that a child has ended, and keeps the buffer that it had open until then.
    end = time.monotonic() + 60
    while (leases := gpushm.status().leases) and time.monotonic() < end:
        time.sleep(0.001)
    assert leases == 0
    assert gpushm.ls() == []


@pytest.fixture
def name() -> Iterator[str]:
    """A name that is unlinked at the end of the test."""
    yield "model"
    with suppress(gpushm.errors.NotFound):
        gpushm.unlink("model")


@pytest.fixture
def raises() -> Callable[..., str]:
    """Calls something that must raise; returns the text. Keeps no traceback, and so no tensors."""

    def run(error: type[BaseException], call: Callable[..., object], *args: object, **words: object) -> str:
        try:
            call(*args, **words)
        except error as e:
            return str(e)
        raise AssertionError(f"no {error.__name__}")

    return run
