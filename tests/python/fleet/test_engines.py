# SPDX-License-Identifier: MIT
"""The examples for distributed engines, on two machines that are one: a raylet or a worker for each daemon."""

from __future__ import annotations

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import BUILD, EXAMPLES, ROOT, Program, ctl

from daemon import Daemon

BIN = Path(sys.executable).parent
NAME = "fleet/digits"


@pytest.fixture
def model(tmp_path: Path) -> Iterator[str]:
    """The network of the demo, on a third machine with a relay."""
    if not (BUILD / "gpushm-relay").exists():
        pytest.skip("no gpushm-relay")
    daemon = Daemon("[pool host]\nkind=host\nsize=64M\n")
    ctl(daemon, "put", "digits", *[f"{a}={ROOT}/tests/data/{a}.npy" for a in ("w1", "b1", "w2", "b2")])
    (tmp_path / "relay.conf").touch()
    words = [str(BUILD / "gpushm-relay"), f"--config={tmp_path}/relay.conf", "--listen=127.0.0.1:0"]
    relay = Program(words, tmp_path / "relay", GPUSHM_SOCKET=daemon.socket)
    yield wait_for(relay, r"http://[^\s/]+")[0] + "/v1/buffers/digits"
    relay.end()
    daemon.remove()


def wait_for(program: Program, pattern: str) -> re.Match[str]:
    """Waits until the program has printed that."""
    end = time.monotonic() + 120
    while (found := re.search(pattern, program.said())) is None:
        assert program.process.poll() is None and time.monotonic() < end, program.said()
        time.sleep(0.05)
    return found


def run(example: str, *words: str, log: Path, **env: str) -> list[str]:
    program = Program([sys.executable, str(EXAMPLES / example), *words], log, **env)
    try:
        status = program.process.wait(150)
    finally:
        program.end()
    assert status == 0, program.said()
    return program.said().splitlines()


def each_has_one_copy(machines: list[Daemon]) -> None:
    """The model is there, once, the same on both, and closed by all that had it open."""
    etags = {json.dumps(json.loads(ctl(d, "stat", "--json=short", NAME))["attrs"]["gpushm.etag"]) for d in machines}
    assert len(etags) == 1, etags
    for daemon in machines:
        end = time.monotonic() + 60
        while (found := json.loads(ctl(daemon, "ls", "--json=short"))) and any(b["readers"] for b in found):
            assert time.monotonic() < end, found
            time.sleep(0.05)
        assert [b["name"] for b in found] == [NAME]


def test_workers_of_dask_load_a_model_once_on_each_machine(machines: list[Daemon], model: str, tmp_path: Path) -> None:
    pytest.importorskip("distributed")
    programs = [
        Program(
            [str(BIN / "dask"), "scheduler", "--host=127.0.0.1", "--port=0", "--no-dashboard"], tmp_path / "scheduler"
        )
    ]
    try:
        address = wait_for(programs[0], r"Scheduler at: *(tcp://\S+)")[1]
        for i, daemon in enumerate(machines):
            words = [str(BIN / "dask"), "worker", address, f"--host=127.0.0.{i + 1}", "--nworkers=2", "--nthreads=1"]
            words += ["--no-dashboard", "--memory-limit=0", f"--local-directory={tmp_path}/w{i}"]
            programs.append(Program(words, tmp_path / f"worker{i}", GPUSHM_SOCKET=daemon.socket))
        # It waits until they have registered.
        said = run("dask_fleet.py", address, model, "4", log=tmp_path / "said", FLEET_NAME=NAME)
    finally:
        for program in reversed(programs):
            program.end()
    assert any("4 workers on 2 machines, 600 answers" in line for line in said), said
    assert sum("has fleet/digits" in line for line in said) == 2, said
    each_has_one_copy(machines)


def test_the_example_of_objects_goes_on_after_its_samplers_death(machines: list[Daemon], tmp_path: Path) -> None:
    pytest.importorskip("ray")
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled", "PYTHONWARNINGS": "ignore"}
    said = run("ray_objects.py", log=tmp_path / "said", GPUSHM_SOCKET=machines[0].socket, **quiet)
    assert any("after the sampler's death: [63.0, 69.0, 75.0, 81.0]" in line for line in said), said
    end = time.monotonic() + 30
    while json.loads(ctl(machines[0], "ls", "--json=short")):
        assert time.monotonic() < end
        time.sleep(0.05)
