# SPDX-License-Identifier: MIT
"""The examples, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import gpushm
import numpy as np
import pytest

from daemon import Daemon

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "client/python/examples"


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *words], capture_output=True, text=True, env=os.environ | env, timeout=200
    )


def test_the_round_trip_is_verified(pool: str) -> None:
    done = run(str(EXAMPLES / "roundtrip.py"), pool)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified") == 2


@pytest.mark.parametrize("why", ["no daemon", "no pool"])
def test_the_round_trip_says_why_it_cannot_run(why: str, tmp_path: Path) -> None:
    env = {"GPUSHM_SOCKET": str(tmp_path / "none")} if why == "no daemon" else {}
    done = run(str(EXAMPLES / "roundtrip.py"), "no-such-pool", **env)
    assert done.returncode == 0 and done.stdout.startswith("nothing to show here: "), done.stderr


def test_a_loop_opens_buffers_as_they_are_published() -> None:
    with subprocess.Popen(
        [sys.executable, EXAMPLES / "open_async.py", "loop/a", "loop/b"], stdout=subprocess.PIPE, text=True
    ) as opener:
        assert opener.stdout
        for name, nbytes in (("loop/b", 2), ("loop/a", 1)):
            with gpushm.create(name, nbytes, pool="host") as a:
                a.publish()
                assert opener.stdout.readline() == f"{name}: {nbytes} bytes\n"
    assert opener.returncode == 0
    for name in ("loop/a", "loop/b"):
        gpushm.unlink(name)


def read_ppm(path: Path) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Of the kind that the example writes."""
    header, _, pixels = path.read_bytes().partition(b"\n")
    kind, width, height, most = header.split()
    assert (kind, most) == (b"P6", b"255")
    return np.frombuffer(pixels, "u1").reshape(int(height), int(width), 3)


def test_the_film_has_each_picture_with_its_box(tmp_path: Path) -> None:
    done = run(str(EXAMPLES / "video.py"), str(tmp_path), "12")
    assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in tmp_path.iterdir()) == [f"{i:04}.ppm" for i in range(1, 13)]
    lines = done.stdout.splitlines()
    for i, line in enumerate(lines):
        top, bottom, left, right = map(int, re.findall(r"(\d+)-(\d+), columns (\d+)-(\d+)", line)[0])
        picture = read_ppm(tmp_path / f"{i + 1:04}.ppm")
        ball = (picture == (240, 120, 30)).all(2)
        ys, xs = np.nonzero(ball)
        assert (ys.min(), ys.max() + 1, xs.min(), xs.max() + 1) == (top, bottom, left, right)
        assert ball[(top + bottom) // 2, (left + right) // 2] and not ball[top, left] and len(ys) > 700
        corners = [(y, x) for y in (top - 4, bottom + 3) for x in (left - 4, right + 3)]
        assert all((picture[c] == 255).all() for c in corners) and (picture == 255).all(2).sum() < 200
    assert len(lines) == 12 and gpushm.ls() == []


def test_every_answer_arrives_although_a_worker_is_killed() -> None:
    done = run(str(EXAMPLES / "batching.py"), "40")
    assert done.returncode == 0, done.stderr
    assert "worker 0 died" in done.stdout and "400 answers in " in done.stdout
    assert gpushm.ls() == []


def test_six_models_in_room_for_two_answer_all_requests() -> None:
    pools = "[pool models]\nkind=host\nsize=2M\npending-max-age=0\n[pool twins]\nkind=host\nsize=16M\n"
    small = Daemon(pools)
    done = run(str(EXAMPLES / "six_models.py"), "models", "twins", "400", GPUSHM_SOCKET=small.socket)
    with gpushm.connect(small.socket) as c:
        evicted = sum(e.buffer > 0 for e in gpushm.events("evicted", since=None, connection=c)._found)
        left = c.ls()
    small.remove()
    assert done.returncode == 0 and done.stderr == "", done.stderr
    assert "400 answers of 4 workers, one of them killed" in done.stdout
    assert left == [] and evicted > 2


def test_the_cameras_recorder_gets_each_frame_and_slow_readers_skip() -> None:
    done = run(str(EXAMPLES / "camera.py"), "120")
    assert done.returncode == 0, done.stderr
    assert "recorder: took 120 frames up to 120, skipped 0" in done.stdout
    for role in ("viewer", "tracker"):
        took, skipped = map(int, re.findall(role + r": took (\d+) frames up to 120, skipped (\d+)", done.stdout)[0])
        # Frames before the first one that it took are not counted.
        assert 0 < took < 120 and 0 < took + skipped <= 120
    assert gpushm.ls() == []
