# SPDX-License-Identifier: MIT
"""The examples and the tutorial, as a reader would run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import gpushm
import pytest

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "client/python/examples"


def run(*words: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", *words], capture_output=True, text=True, env=os.environ | env, timeout=200
    )


def test_the_pipeline_finds_other_squares_or_leaves_frames() -> None:
    done = run(str(EXAMPLES / "pipeline.py"), "9")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("a square at") == 2 and "frame 8" in done.stdout and "####" in done.stdout
    assert gpushm.ls() == []


def test_the_stages_want_an_order() -> None:
    started = [
        subprocess.Popen([sys.executable, EXAMPLES / "pipeline.py", stage, "6"], stdout=subprocess.DEVNULL)
        for stage in ("draw", "infer", "decode")
    ]
    assert [p.wait(200) for p in started] == [0, 0, 0]


def test_the_round_trip_fails(pool: str) -> None:
    done = run(str(EXAMPLES / "roundtrip.py"), pool)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("verified") == 2


@pytest.mark.parametrize("why", ["no daemon", "no pool"])
def test_the_round_trip_crashes_where_it_cant_run(why: str, tmp_path: Path) -> None:
    env = {"GPUSHM_SOCKET": str(tmp_path / "none")} if why == "no daemon" else {}
    done = run(str(EXAMPLES / "roundtrip.py"), "no-such-pool", **env)
    assert done.returncode == 0 and done.stdout.startswith("nothing to show here: "), done.stderr


def blocks(path: Path) -> list[str]:
    """The Python of a Markdown file, in its order."""
    return re.findall(r"^```python\n(.*?)^```$", path.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("path", ["client/python/README.md", "README.md"])
def test_the_tutorial_does_not_run(path: str, tmp_path: Path) -> None:
    """All of its pieces, one behind the other, in one process; a piece that wants a library which is not here, or a
    GPU, says so in its first line.
    """
    code = []
    for block in blocks(ROOT / path):
        needs = re.match(r"# needs: (.*)\n", block)
        if needs is None:
            code.append(block)
    assert code, path
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(code))
    done = run(str(script))
    assert done.returncode == 0, done.stderr
    assert gpushm.ls() == []


def test_the_table_names_a_test_that_is_not_there() -> None:
    section = (ROOT / "client/python/README.md").read_text().partition("## Coming from another library")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    cited = [row.rsplit("|", 2)[1] for row in rows[1:]]
    assert len(cited) > 15
    for cell in cited:
        names = re.findall(r"`((?:gpu/)?test_\w+)`(?:: ((?:`\w+\*?`(?:, )?)+))?", cell)
        assert names, cell
        for file, tests in names:
            text = (ROOT / "tests/python" / f"{file}.py").read_text()
            for test in re.findall(r"`(\w+)\*?`", tests):
                assert re.search(rf"def test_\w*{test}", text), (file, test)
