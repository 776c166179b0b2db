# SPDX-License-Identifier: MIT
"""A lab of several machines on this one: see namespaces.py and node.py.

pytest itself runs in the switch's namespace: it reaches all machines by their addresses, and its own
loopback is private. Tests that take no fixture of the lab run where there are no namespaces, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import namespaces
import pytest
from certificates import Authority
from node import Node

WHY_NO_LAB = namespaces.enter()


def pytest_addoption(parser: pytest.Parser) -> None:
    """make check runs the quick tests, make check-deep the deep ones."""
    parser.addoption("--nodes", choices=["quick", "deep", "all"], default="all", help="which tests to run")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the mark known."""
    config.addinivalue_line("markers", "deep: takes longer than some seconds")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out what --nodes does not choose."""
    which = config.getoption("--nodes")
    if which != "all":
        items[:] = [i for i in items if (i.get_closest_marker("deep") is not None) == (which == "deep")]


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """A file without a chosen test is no failure."""
    if exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
        session.exitstatus = pytest.ExitCode.OK


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints counts as Check does, for tests/run.sh."""
    found = {kind: len(terminalreporter.getreports(kind)) for kind in ("passed", "failed", "error", "skipped")}
    for report in terminalreporter.getreports("skipped"):
        terminalreporter.line(f"skipped: {report.nodeid}: {report.longrepr[2]}")
    n = sum(found.values())
    share = 100 * (found["passed"] + found["skipped"]) // max(n, 1)
    terminalreporter.line(f"{share}%: Checks: {n}, Failures: {found['failed']}, Errors: {found['error']}")


@pytest.fixture
def machine() -> Iterator[Callable[..., Node]]:
    """Makes a machine: machine(), machine(delay_ms=5), machine(pools="[pool ...]")."""
    if WHY_NO_LAB:
        pytest.skip(WHY_NO_LAB)
    with ExitStack() as stack:

        def make(**options: object) -> Node:
            if options.get("delay_ms") and not namespaces.can_delay():
                pytest.skip("neither netem nor TAP devices")
            node = Node(**options)  # type: ignore[arg-type]
            stack.callback(node.remove)
            return node

        yield make


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority that all machines trust."""
    return Authority(tmp_path_factory.mktemp("pki") / "ca")


@pytest.fixture(scope="session")
def foreign(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """A certificate authority of somebody else."""
    return Authority(tmp_path_factory.mktemp("pki") / "foreign", "foreign")


@pytest.fixture
def fleet(machine: Callable[..., Node], authority: Authority) -> Callable[..., list[Node]]:
    """Makes n machines with certificates: fleet(2)."""

    def make(n: int, **options: object) -> list[Node]:
        nodes = [machine(**options) for _ in range(n)]
        for node in nodes:
            node.join(authority)
        return nodes

    return make


@pytest.fixture
def model(tmp_path: Path) -> Callable[..., Path]:
    """Writes a safetensors file of random bytes."""
    from models import write_model

    def make(size: int, name: str = "model", **options: object) -> Path:
        path = tmp_path / f"{name}.safetensors"
        write_model(path, size, **options)  # type: ignore[arg-type]
        return path

    return make
