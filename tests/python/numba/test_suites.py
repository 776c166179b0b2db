# SPDX-License-Identifier: MIT
"""numba-cuda's own tests, from its wheel, have the same outcomes with gpushm's memory manager and without."""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

HERE = Path(__file__).parent
FAKE = hasattr(ctypes.CDLL("libcuda.so.1"), "fakecuda_handed_out")
# Whole modules, below numba.cuda.tests.
ON_A_GPU = """
cudapy.test_ipc cudapy.test_cuda_array_interface cudapy.test_array cudadrv.test_emm_plugins cudadrv.test_cuda_memory
cudadrv.test_pinned cudadrv.test_array_attr cudadrv.test_deallocations cudadrv.test_host_alloc cudadrv.test_cuda_ndarray
cudadrv.test_cuda_devicerecord cudadrv.test_context_stack cudadrv.test_cuda_array_slicing
"""


def outcomes(manager: str, names: list[str]) -> dict[str, str]:
    # Numba's own limits: tests/python/conftest.py sets others for the tests of gpushm.
    env = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_CUDA_MAX_PENDING")}
    done = subprocess.run(
        [sys.executable, "-B", HERE / "suites.py", manager, *names],
        env=env, capture_output=True, text=True, timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_numbas_own_tests_pass_with_the_manager_as_without() -> None:
    pytest.importorskip("filecheck", reason="numba-cuda's tests need the package filecheck")
    listed = [t for t in (HERE / "over_fake.txt").read_text().splitlines() if not t.startswith("#")]
    names = listed if FAKE else ON_A_GPU.split()
    # The fake driver has no IPC handles of its own.
    plain = [name for name in names if not (FAKE and name == "cudapy.test_ipc")]
    with ThreadPoolExecutor(2 if FAKE else 1) as two:
        with_it, without = two.map(outcomes, ("gpushm", "own"), (names, plain))
    assert [f"{name}: {what}" for name, what in with_it.items() if what.startswith("failed")] == []
    assert {name: what for name, what in with_it.items() if name in without} == without
    assert with_it.keys() - without.keys() == {n for n in with_it if FAKE and n.startswith("cudapy.test_ipc.")}
    print(f"{len(with_it)} tests with gpushm's manager, {len(without)} of them with Numba's own")
    for name, what in with_it.items():
        if what != "ok":
            print(f"{name}: {what}")
