# SPDX-License-Identifier: MIT
"""One camera and three readers, each at a speed of its own.

    python camera.py [FRAMES]

recorder wants every frame, and may be as many frames behind as the stream has slots; viewer wants the latest one; so
does tracker, which is slow and skips what it has no time for. None of the latter two ever holds up the camera.
"""

from __future__ import annotations

import multiprocessing
import sys
import time

import gpushm

NAME = "~/camera/0"
SHAPE, RATE = (270, 480, 3), 240


def camera(count: int) -> None:
    """Publishes frames at a fixed rate."""
    with gpushm.stream(NAME, {"rgb": (SHAPE, "uint8")}, slots=16, pool="host") as s:
        while s.stats().readers < 3:
            time.sleep(0.01)
        begin = time.monotonic()
        for i in range(count):
            time.sleep(max(0.0, begin + i / RATE - time.monotonic()))
            with s.frame() as f:
                f["rgb"].fill(i % 256)
                f.meta = {"exposure": 1 / RATE}
        stats = s.stats()
        print(f"camera: {count} frames in {time.monotonic() - begin:.2f} s, waited {stats.stalls} times", flush=True)


def reader(role: str, how: str, seconds: float) -> None:
    """Looks at frames; each takes that long."""
    taken = skipped = last = 0
    age = 0.0
    with gpushm.follow(NAME, how, timeout=60) as frames:  # type: ignore[arg-type]
        for f in frames:
            age = max(age, time.monotonic() - (f.time or 0))
            pixels = f["rgb"].numpy()
            assert (pixels == (f.seq - 1) % 256).all(), "a torn frame"
            time.sleep(seconds)
            taken, skipped, last = taken + 1, skipped + f.skipped, f.seq
    print(f"{role}: took {taken} frames up to {last}, skipped {skipped}; the oldest was {age * 1e3:.1f} ms old")


def main() -> None:
    """Runs the four processes."""
    count = int(sys.argv[1]) if sys.argv[1:] else 480
    spawn = multiprocessing.get_context("spawn").Process
    roles = [("recorder", "every", 0.0), ("viewer", "latest", 1 / 60), ("tracker", "latest", 0.1)]
    processes = [spawn(target=camera, args=(count,)), *(spawn(target=reader, args=role) for role in roles)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
