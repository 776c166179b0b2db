# SPDX-License-Identifier: MIT
"""The lab itself: machines reach each other, links are slow or lossy as told, certificates say what they should."""

from __future__ import annotations

import os
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from certificates import Authority
from node import Node

HERE = Path(__file__).parent


def serve(node: Node, size: int) -> int:
    """Starts a program in the machine that sends so many bytes to each that connects. Returns its port."""
    program = (
        "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True)\n"
        f"while True: c = s.accept()[0]; c.sendall(bytes({size})); c.close()"
    )
    server = node.start(sys.executable, "-c", program, stdout=subprocess.PIPE)
    assert server.stdout is not None
    return int(server.stdout.readline())


def receive(node: Node, port: int) -> tuple[int, float]:
    """Reads all from there; the bytes and seconds."""
    with closing(socket.create_connection((node.address, port), timeout=60)) as c:
        start, n = time.monotonic(), 0
        while piece := c.recv(1 << 20):
            n += len(piece)
        return n, time.monotonic() - start


def test_machines_have_daemons_of_their_own(machine: Callable[..., Node]) -> None:
    a, b = machine(), machine()
    a.ctl("create", "x", "--size", "1M")
    assert "x" in a.ctl("ls").stdout
    assert "x" not in b.ctl("ls").stdout
    assert a.run("ip", "-4", "addr", "show", "eth0").stdout.count(a.address) == 1


def test_a_limited_link_is_slow(machine: Callable[..., Node]) -> None:
    a = machine()
    port = serve(a, 2_000_000)
    a.limit(up="40mbit")
    sent = a.bytes_sent()
    n, seconds = receive(a, port)
    assert n == 2_000_000
    # 5 MB/s, but for the first 256 KiB.
    assert seconds > 0.3
    assert a.bytes_sent() - sent > n
    a.unlimit()


def test_a_link_with_delay_has_a_round_trip(machine: Callable[..., Node]) -> None:
    a = machine(delay_ms=20)
    port = serve(a, 1000)
    start = time.monotonic()
    n, _ = receive(a, port)
    assert n == 1000
    # A connection, and the bytes: two round trips.
    assert time.monotonic() - start > 0.07


@pytest.mark.deep
def test_a_link_that_loses_packets_delivers_all_bytes(machine: Callable[..., Node]) -> None:
    a = machine()
    port = serve(a, 1_000_000)
    a.lose(0.02)
    assert receive(a, port)[0] == 1_000_000


def test_an_unplugged_machine_is_silent(machine: Callable[..., Node]) -> None:
    a = machine()
    port = serve(a, 10)
    assert receive(a, port)[0] == 10
    a.unplug()
    with pytest.raises(TimeoutError):
        socket.create_connection((a.address, port), timeout=0.2)
    a.plug()
    assert receive(a, port)[0] == 10


def test_certificates_are_what_they_say(authority: Authority, foreign: Authority, tmp_path: Path) -> None:
    def verdict(ca: Path, cert: Path) -> str:
        return subprocess.run(["openssl", "verify", "-CAfile", ca, cert], capture_output=True, text=True).stderr

    good = authority.issue("good", "DNS:good", "IP:10.0.0.1")
    assert verdict(authority.cert, good.cert) == ""
    assert "unable to get local issuer" in verdict(foreign.cert, good.cert)
    assert "expired" in verdict(authority.cert, authority.expired("old", "DNS:old").cert)
    text = subprocess.run(["openssl", "x509", "-noout", "-text", "-in", good.cert], capture_output=True, text=True)
    assert "DNS:good, IP Address:10.0.0.1" in text.stdout


def test_nothing_is_left_when_the_tests_are_killed(tmp_path: Path) -> None:
    inner = tmp_path / "test_inner.py"
    inner.write_text(
        "import namespaces, os\n"
        "def test_waits(machine):\n"
        "    a = machine(delay_ms=int(namespaces.can_delay()))\n"
        "    a.ctl('ls')\n"
        "    sleeper = a.start('sleep', '1000')\n"
        "    os.write(int(os.environ['TOLD']), f'{a._holder.pid} {a.daemon.process.pid} {sleeper.pid}\\n'.encode())\n"
        "    sleeper.wait()\n"
    )
    from conftest import WHY_NO_LAB

    if WHY_NO_LAB:
        pytest.skip(WHY_NO_LAB)
    r, w = os.pipe()
    command = [sys.executable, "-B", "-m", "pytest", "-q", "-c", HERE / "pytest.ini", "-p", "conftest", "-s", inner]
    child = subprocess.Popen(
        command,
        pass_fds=[w],
        env=os.environ | {"PYTHONPATH": str(HERE), "TOLD": str(w)},
        stdout=subprocess.DEVNULL,
    )
    os.close(w)
    with os.fdopen(r) as told:
        pids = [int(pid) for pid in told.readline().split()]
        assert len(pids) == 3
        fds = [os.pidfd_open(pid) for pid in pids]
        child.send_signal(signal.SIGKILL)
        child.wait()
        for fd in fds:
            ended, _, _ = select.select([fd], [], [], 60)
            os.close(fd)
            assert ended
