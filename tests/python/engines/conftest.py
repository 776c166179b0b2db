# SPDX-License-Identifier: MIT
"""For tests with vLLM's own Python files. make check-engines runs them, with ENGINE_FILES on the path."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import gpushm
import pytest

sys.path.insert(0, str(Path(__file__).parent))

import tiny

VLLM = any((Path(folder) / "vllm").is_dir() for folder in sys.path if "engines/vllm" in folder)
if not VLLM:
    collect_ignore_glob = ["test_vllm*.py"]


def pytest_report_header() -> str:
    """Prints the versions that run."""
    from importlib.metadata import version

    return ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", *["vllm"] * VLLM))


@pytest.fixture(scope="session")
def vllm() -> None:
    """A worker of vLLM on the CPU, with the plugin."""
    import gpushm.vllm

    tiny.start()
    gpushm.vllm.register()
    gpushm.vllm.register()


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """A model of each kind."""
    folder = tmp_path_factory.mktemp("models")
    return {kind: tiny.make(folder, kind) for kind in tiny.KINDS}


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """Unlinks what a test has published, and checks that nobody has it open any more."""
    yield
    sys.last_value = sys.last_traceback = sys.last_exc = None
    gc.collect()
    for buffer in gpushm.ls():
        if buffer.name:
            gpushm.unlink(buffer.name)
    left = [(buffer.readers, buffer.writers) for buffer in gpushm.ls()]
    assert left == []


os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
