# SPDX-License-Identifier: MIT
"""A write to read-only host memory ends the process; its last words say which buffer and which array it was."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import gpushm
import pytest

WRITE = """
import ctypes, gpushm
b = gpushm.open_many("model")
ctypes.memset(b.host_ptr + {offset}, 1, 1)
"""


@pytest.fixture
def model() -> Iterator[str]:
    """Two arrays, one of them with strides, and bytes that are no array's."""
    with gpushm.create_many("model", {}, nbytes=4096, pool="host") as b:
        b.describe({"head.bias": ((4,), "float32", (4,), 0), "head.weight": ((4, 2), "float32", (16, 4), 256)})
        b.publish()
    yield "model"
    gpushm.unlink("model")


def child(code: str, **env: str) -> tuple[int, str]:
    """The status of a new process, and what it wrote to stderr."""
    # AddressSanitizer has a handler of its own.
    sanitizer = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":handle_segv=0"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | sanitizer | env, timeout=120
    )
    return done.returncode, done.stderr


@pytest.mark.parametrize(("offset", "array"), [(15, '"head.bias"'), (256 + 3 * 16 + 7, '"head.weight"'), (4095, None)])
def test_a_write_names_buffer_and_array_and_what_to_do(model: str, offset: int, array: str | None) -> None:
    status, said = child(WRITE.format(offset=offset))
    assert status == -signal.SIGSEGV
    assert 'buffer "model"' in said and "clone()" in said and "writable=" in said and "eval()" in said
    assert (f"array {array}" in said) if array else ("array" not in said)


def test_a_fault_elsewhere_is_no_write_to_a_buffer(model: str) -> None:
    for code in ("ctypes.memset(8, 1, 1)", "os.kill(os.getpid(), 11)"):
        status, said = child(f'import ctypes, gpushm, os; b = gpushm.open_many("model"); {code}')
        assert (status, said) == (-signal.SIGSEGV, "")


def test_a_buffer_that_was_closed_is_not_named(model: str) -> None:
    code = """
import ctypes, gpushm, mmap
with gpushm.open_many("model") as b:
    at = b.host_ptr
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 4
assert libc.mmap(at, 4096, mmap.PROT_READ, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x10, -1, 0) == at
ctypes.memset(at, 1, 1)
"""
    assert child(code) == (-signal.SIGSEGV, "")


def test_a_handler_from_before_runs_too(model: str) -> None:
    status, said = child("import faulthandler\nfaulthandler.enable()" + WRITE.format(offset=0))
    assert status == -signal.SIGSEGV
    assert said.index('buffer "model"') < said.index("Segmentation fault") < said.index("line")


def test_the_handler_can_be_left_out(model: str) -> None:
    assert child(WRITE.format(offset=0), GPUSHM_SIGSEGV="0") == (-signal.SIGSEGV, "")
