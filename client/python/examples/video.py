# SPDX-License-Identifier: MIT
"""decode, infer, draw: three processes that hand a film on in two streams.

    python video.py FOLDER [FRAMES]

decode makes the pictures of a ball that is thrown over hills, infer finds the ball in each, and draw writes them to
FOLDER as PPM files with a box around the ball. No picture is copied between the processes. On a machine with a GPU and
CuPy the film lies on the GPU, and infer waits for no GPU on the host: its streams are ordered behind decode's.
"""

from __future__ import annotations

import importlib.util
import multiprocessing
import sys
import time
import warnings
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import gpushm
import numpy as np

FILM, BOXES = "~/video/film", "~/video/boxes"
HEIGHT, WIDTH, RADIUS, MARGIN = 180, 320, 16, 4


def place() -> tuple[str, Any, Any]:
    """(a pool, a library with NumPy's functions for its memory, a CUDA stream or None)."""
    gpus = [p.name for p in gpushm.pools() if p.kind == "vmm" and not p.failed]
    if not gpus or not importlib.util.find_spec("cupy"):
        return "host", np, None
    cupy: Any = importlib.import_module("cupy")
    warnings.simplefilter("ignore", gpushm.errors.ReadOnlyWarning)  # infer does not write to the film
    return gpus[0], cupy, cupy.cuda.Stream(non_blocking=True)


def view(xp: Any, array: gpushm.Array) -> Any:
    """The same memory as an array of the library."""
    return array.numpy() if xp is np else xp.from_dlpack(array)


def background() -> np.ndarray[Any, np.dtype[np.uint8]]:
    """A sky over hills."""
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype("float32")
    picture = np.stack([110 + y / 3, 150 + y / 3, 230 - y / 4], 2)
    picture[y > 145 + 12 * np.sin(x / 25 + 2)] = (40, 80, 50)
    return picture.astype("uint8")


def center(i: int, count: int) -> tuple[int, int]:
    """Where the ball is in picture i."""
    t = i / max(count - 1, 1)
    return int(140 - 440 * t * (1 - t)), int(2 * RADIUS + (WIDTH - 4 * RADIUS) * t)


def wait_for_readers(s: gpushm.types.Stream, n: int) -> None:
    """A reader gets what is published after it has joined."""
    while s.stats().readers < n:
        time.sleep(0.01)


def decode(count: int) -> None:
    """Makes the film: infer and draw get every picture, so decode waits for the slower of them."""
    pool, _, stream = place()
    still, (y, x) = background(), np.mgrid[:HEIGHT, :WIDTH]
    with gpushm.stream(FILM, {"rgb": (still.shape, "uint8")}, slots=8, pool=pool) as film:
        wait_for_readers(film, 2)
        for i in range(count):
            row, column = center(i, count)
            picture = still.copy()
            picture[(y - row) ** 2 + (x - column) ** 2 < RADIUS**2] = (240, 120, 30)
            with film.frame(stream) as f:
                f["rgb"].copy_from_host(picture, stream)
                f.meta = {"t": i / 24}


def infer() -> None:
    """Finds the ball: the rows and columns in which something is orange."""
    pool, xp, stream = place()
    with gpushm.stream(BOXES, {"box": (4, "int64")}, slots=8, pool=pool) as boxes:
        wait_for_readers(boxes, 1)
        for f in gpushm.follow(FILM, "every", stream=stream, timeout=60):
            with stream or nullcontext(), boxes.frame(stream) as b:
                rgb = view(xp, f["rgb"]).astype("int16")
                ball = rgb[:, :, 0] - rgb[:, :, 2] > 100
                found = view(xp, b["box"])
                for axis, size in ((1, HEIGHT), (0, WIDTH)):
                    line = ball.any(axis)
                    found[1 - axis] = line.argmax()
                    found[3 - axis] = size - line[::-1].argmax()


def draw(folder: Path) -> None:
    """Writes the pictures. Both readers get every frame, so a picture and its box come together."""
    with gpushm.follow(BOXES, "every", timeout=60) as boxes, gpushm.follow(FILM, "every", timeout=60) as film:
        for f, b in zip(film, boxes, strict=True):
            picture = f["rgb"].copy_to_host()
            top, left, bottom, right = (int(n) for n in b["box"].copy_to_host())
            rows, columns = slice(top - MARGIN, bottom + MARGIN), slice(left - MARGIN, right + MARGIN)
            frame = picture[rows, columns].copy()
            picture[rows, columns] = (255, 255, 255)
            picture[rows, columns][1:-1, 1:-1] = frame[1:-1, 1:-1]
            header = b"P6 %d %d 255\n" % (WIDTH, HEIGHT)
            (folder / f"{f.seq:04}.ppm").write_bytes(header + picture.tobytes())
            print(f"{f.seq:04}.ppm: at {f.meta['t']:.2f} s the ball is in rows {top}-{bottom}, columns {left}-{right}")


def main() -> None:
    """Runs the three processes. They are spawned, because CUDA does not work after fork()."""
    folder = Path(sys.argv[1] if sys.argv[1:] else "film")
    folder.mkdir(parents=True, exist_ok=True)
    count = int(sys.argv[2]) if sys.argv[2:] else 48
    spawn = multiprocessing.get_context("spawn").Process
    processes = [spawn(target=decode, args=(count,)), spawn(target=infer), spawn(target=draw, args=(folder,))]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
