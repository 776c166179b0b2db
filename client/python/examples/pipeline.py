# SPDX-License-Identifier: MIT
"""A pipeline of three processes that share frames by name: decode, infer, draw.

    python pipeline.py                                # all three, 8 frames
    python pipeline.py decode 100 & python pipeline.py infer 100 & python pipeline.py draw 100

decode makes pictures of a moving square, infer finds the square in each, and draw puts a box around it and prints the
first and the last picture as text. No frame is copied on its way: all stages map the same memory. On a machine with a
GPU it is the GPU's memory, and infer works there with CuPy; otherwise it is the host's, and infer uses NumPy. The
stages can be started in any order. If a stage is killed, only the buffers that it has published stay.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from typing import Any

import gpushm
import numpy as np

PREFIX = os.environ.get("PIPELINE_PREFIX", "~/pipeline")
HEIGHT, WIDTH, SQUARE = 48, 64, 12
AT_ONCE = 4  # frames between decode and draw
PATIENCE = 60.0  # seconds that a stage waits for the one before it
BOX = np.dtype([("top", "i4"), ("left", "i4"), ("bottom", "i4"), ("right", "i4"), ("score", "f4")])


def picture(i: int) -> tuple[np.ndarray, tuple[int, int]]:
    """Frame i and the place of its square, instead of a frame from a file."""
    top, left = (7 * i) % (HEIGHT - SQUARE), (5 * i) % (WIDTH - SQUARE)
    frame = np.random.default_rng(i).integers(0, 40, (HEIGHT, WIDTH, 3), np.uint8)
    frame[top : top + SQUARE, left : left + SQUARE] = (250, 200, 60)
    return frame, (top, left)


def decode(count: int) -> None:
    """Fills frames and publishes them, sealed; at most AT_ONCE frames ahead of draw."""
    with gpushm.watch() as watch:
        for i in range(count):
            frame, _ = picture(i)
            with gpushm.create(f"{PREFIX}/frame/{i}", frame.shape, frame.dtype) as out:
                out.copy_from_host(frame)
                # The event "gone" comes when draw has unlinked the buffer and no process has it open.
                watch.add(out)
                out.publish()
            if i >= AT_ONCE:
                wait_for_one_to_go(watch)


def wait_for_one_to_go(watch: gpushm.types.Watch) -> None:
    """Waits until draw has finished a frame."""
    while watch.next(PATIENCE).what != "gone":
        pass


def infer(count: int) -> None:
    """Finds the bright square in each frame, and publishes its place as a record."""
    for i in range(count):
        with (
            gpushm.open(f"{PREFIX}/frame/{i}", timeout=PATIENCE) as frame,
            gpushm.create(f"{PREFIX}/box/{i}", (), BOX) as box,
        ):
            box.copy_from_host(np.array(find(frame), BOX))
            box.publish()


def find(frame: gpushm.Array) -> tuple[int, int, int, int, float]:
    """The bright rows and columns, found on the device of the frame."""
    xp, pixels = on_its_device(frame)
    bright = pixels[:, :, 0] > 128
    rows, columns = xp.nonzero(bright.any(1))[0], xp.nonzero(bright.any(0))[0]
    score = float(bright.sum()) / SQUARE**2
    return int(rows.min()), int(columns.min()), int(rows.max()) + 1, int(columns.max()) + 1, score


def on_its_device(frame: gpushm.Array) -> tuple[Any, Any]:
    """(a library with NumPy's functions, the frame as its array); copies only on a GPU without CuPy."""
    if frame.kind in ("host", "pinned"):
        return np, frame.numpy()
    try:
        import cupy
    except ImportError:
        return np, frame.copy_to_host()
    return cupy, cupy.asarray(frame)


def draw(count: int) -> list[tuple[int, int]]:
    """Puts each box around its square, prints the first and the last frame, and returns the places of the squares."""
    found = []
    for i in range(count):
        # When the box is published, infer has finished the frame.
        with gpushm.open(f"{PREFIX}/box/{i}", timeout=PATIENCE) as box, gpushm.open(f"{PREFIX}/frame/{i}") as frame:
            there = box[()]
            image = frame.copy_to_host()
            found.append((there.top, there.left))
            if i in (0, count - 1):
                show(i, image, box.copy_to_host()[()])
            box.unlink()
            frame.unlink()
            del there
    return found


def show(i: int, image: np.ndarray, box: Any) -> None:
    """Prints the frame as text, one letter for 4 x 2 pixels, with the box."""
    text = np.where(image[::4, ::2, 0] > 128, "#", ".")
    top, left, bottom, right = box["top"] // 4, box["left"] // 2, (box["bottom"] + 3) // 4, (box["right"] + 1) // 2
    text[top:bottom, [left, right - 1]] = "|"
    print(f"frame {i}: a square at row {box['top']}, column {box['left']}, score {box['score']:.2f}")
    print("\n".join("".join(row) for row in text), flush=True)


def check(count: int) -> None:
    """Draws, and checks that each square was found where decode had put it."""
    assert draw(count) == [picture(i)[1] for i in range(count)]


def main() -> None:
    """Runs one stage, or all of them."""
    stages = {"decode": decode, "infer": infer, "draw": check}
    words = [w for w in sys.argv[1:] if w in stages]
    count = next((int(w) for w in sys.argv[1:] if w.isdigit()), 8)
    if words:
        stages[words[0]](count)
        return
    # The processes share only names. They are spawned, because CUDA does not work after fork().
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=stage, args=(count,)) for stage in stages.values()]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main()
