# SPDX-License-Identifier: MIT
"""A parent fills a buffer, a child checks it and writes into it, and the parent checks that.

    python roundtrip.py [POOL]

This is the round trip of cuda.core's sample for IPC, with a name instead of a queue and a handle. Without a daemon, or
without such a pool, it prints the reason and ends.
"""

from __future__ import annotations

import os
import subprocess
import sys

import gpushm
import numpy as np

COUNT = 1 << 20


def pattern(seed: int) -> np.ndarray:
    """Numbers that no empty or other buffer has."""
    return (np.arange(COUNT, dtype=np.uint32) * 2654435761 + seed).astype(np.uint32)


def child(name: str) -> None:
    """Runs in a process of its own, which knows only the name."""
    with gpushm.open(name, "r+", timeout=10) as a:
        assert np.array_equal(a.copy_to_host(), pattern(1)), "the parent's pattern did not arrive"
        a.copy_from_host(pattern(2))
    print(f"child {os.getpid()}: verified, and wrote its own")


def parent(pool: str | None) -> None:
    """Makes the buffer, and starts the child."""
    name = f"~/roundtrip-{os.getpid()}"
    with gpushm.create(name, COUNT, "uint32", pool=pool, transient=True) as a:
        a.copy_from_host(pattern(1))
        # Shared, not sealed: the child may open it for writing.
        a.publish("shared")
        print(f"parent {os.getpid()}: {a!r}")
        subprocess.run([sys.executable, __file__, "--child", name], check=True)
        assert np.array_equal(a.copy_to_host(), pattern(2)), "the child's pattern did not arrive"
    print(f"parent {os.getpid()}: verified")


def main() -> None:
    """Runs the parent, which starts the child."""
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2])
        return
    try:
        parent(sys.argv[1] if len(sys.argv) > 1 else None)
    except (gpushm.errors.DaemonGone, gpushm.errors.NotFound, gpushm.errors.DeviceFailed) as e:
        print(f"nothing to show here: {e}")


if __name__ == "__main__":
    main()
