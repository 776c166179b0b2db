# SPDX-License-Identifier: MIT
"""For tests with the engines' own Python files. make check-engines runs them, with those of $ENGINE on the path."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gpushm
import pytest
from gpushm.torch import _memory

sys.path.insert(0, str(Path(__file__).parent))

import tiny

ENGINE = os.environ.get("ENGINE", "")
collect_ignore_glob = [f"test_{engine}*.py" for engine in ("vllm", "sglang") if engine != ENGINE]


def pytest_report_header() -> str:
    """Prints the versions that run."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", ENGINE) if name)


@pytest.fixture(scope="session")
def vllm() -> None:
    """A worker of vLLM, with the plugin."""
    import gpushm.vllm

    tiny.start()
    gpushm.vllm.register()
    gpushm.vllm.register()


@pytest.fixture(scope="session")
def sglang(models: dict[str, str]) -> None:
    """A worker of SGLang, with the plugin."""
    import gpushm.sglang
    import tiny_sglang

    tiny_sglang.start(models["llama"])
    gpushm.sglang.register()
    gpushm.sglang.register()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny.make(folder, kind) for kind in (*tiny.KINDS, "fp8-blocks")}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Unlinks what a test has published, and checks that nobody has it open any more."""
    yield
    sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    _memory._end_unused()
    for buffer in gpushm.ls():
        if buffer.name:
            gpushm.unlink(buffer.name)
    left = [(buffer.readers, buffer.writers) for buffer in gpushm.ls()]
    assert left == []


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
