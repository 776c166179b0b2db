# SPDX-License-Identifier: MIT
"""Pulls by NIXL, over our own libnixl_capi.so: what the relay grants, and what the puller makes of it."""

from __future__ import annotations

import http.client
import json
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from node import BUILD, TIMEOUT, Node, Relay

MIB = 1 << 20
BRIDGE = "10.83.255.254"  # the address of the tests themselves


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Both sides use the library of tests/fakenixl, with sockets in a folder that all machines see."""
    with tempfile.TemporaryDirectory(prefix="nixl-") as folder:
        monkeypatch.setenv("GPUSHM_NIXL", str(BUILD.resolve() / "fakenixl" / "libnixl_capi.so"))
        monkeypatch.setenv("FAKENIXL_DIR", folder)
        yield


@pytest.fixture
def serving(machine: Callable[..., Node], model: Callable[..., Path]) -> tuple[Node, Relay]:
    """A machine that serves a buffer "m" of 9 MiB."""
    node = machine()
    node.ctl("load", model(9 * MIB), "m")
    return node, node.relay("nixl=yes\n", insecure=True)


def ask(relay: Relay, name: str, body: object) -> tuple[int, Any]:
    """POST /v1/nixl/NAME."""
    c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=60)
    try:
        c.request("POST", f"/v1/nixl/{name}", body if isinstance(body, str) else json.dumps(body))
        reply = c.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        c.close()


def etag_of(relay: Relay, name: str) -> str:
    """What the relay says that the buffer's file is, as soon as it knows the buffer."""
    c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=60)
    try:
        c.request("GET", f"/v1/manifests/{name}", headers={"Prefer": "wait=20"})
        return str(json.loads(c.getresponse().read())["etag"])
    finally:
        c.close()


def has_session(relay: Relay) -> bool:
    """Whether the relay has granted one that has not ended."""
    c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=60)
    try:
        c.request("GET", "/metrics")
        return b"\ngpushm_relay_nixl_sessions 0\n" not in c.getresponse().read()
    finally:
        c.close()


def begin(relay: Relay, name: str = "m") -> Any:
    """A session."""
    status, grant = ask(relay, name, {"version": 1, "etag": etag_of(relay, name)})
    assert status == 200, grant
    return grant


def test_two_pullers_of_a_buffer_share_one_registration(serving: tuple[Node, Relay]) -> None:
    """The second grant has the metadata of the first one: one agent, one registration."""
    _, relay = serving
    a, b = begin(relay), begin(relay)
    assert a["session"] != b["session"]
    assert (a["metadata"], a["memory"], a["pieces"]) == (b["metadata"], b["memory"], b["pieces"])
    assert sum(n for _, n, _ in a["pieces"]) == 9 * MIB
    assert a["pieces"][0][0] == a["header"]


def test_a_session_that_ended_is_refused(serving: tuple[Node, Relay]) -> None:
    """Its name means nothing any more; neither does one that never was, or is of another buffer."""
    _, relay = serving
    session = begin(relay)["session"]
    assert ask(relay, "m", {"session": session}) == (200, {})
    assert ask(relay, "other", {"session": session})[0] == 409
    assert ask(relay, "m", {"session": session, "end": True}) == (200, {})
    assert ask(relay, "m", {"session": session})[0] == 409
    assert ask(relay, "m", {"session": "0" * 32})[0] == 409


def test_a_request_that_is_nonsense_is_refused(serving: tuple[Node, Relay]) -> None:
    """Each is told what is wrong, and the relay goes on."""
    _, relay = serving
    session = begin(relay)["session"]
    fill = {"slot": 0, "offset": 1 << 20, "bytes": 10}
    direct, strange = ({"session": session, "fill": f} for f in (fill, 1))
    for body in ("", "[]", "{", {"version": 1}, {"etag": "x"}, direct, strange):
        assert ask(relay, "m", body)[0] == 400, body
    assert ask(relay, "m", {"version": 2, "etag": "x"})[0] == 501
    assert ask(relay, "nothing", {"version": 1, "etag": "x"})[0] == 404
    c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=60)
    c.request("GET", "/v1/nixl/m")
    assert c.getresponse().status == 405
    c.close()
    assert ask(relay, "m", {"session": session}) == (200, {})


def test_an_address_has_a_limit_of_sessions(serving: tuple[Node, Relay]) -> None:
    """Four for each; those that end make room."""
    _, relay = serving
    sessions = [begin(relay)["session"] for _ in range(4)]
    status, reply = ask(relay, "m", {"version": 1, "etag": etag_of(relay, "m")})
    assert status == 503
    assert "sessions" in reply["error"]
    ask(relay, "m", {"session": sessions[0], "end": True})
    begin(relay)


def test_a_relay_serves_by_nixl_only_if_configured(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    """Without nixl=yes it does not, and says why."""
    node = machine()
    node.ctl("load", model(MIB), "m")
    status, reply = ask(node.relay("", insecure=True), "m", {"version": 1, "etag": "x"})
    assert status == 501
    assert "nixl=yes" in reply["error"]


def test_a_relay_without_the_library_says_so(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says so when it starts, and to pullers."""
    monkeypatch.setenv("GPUSHM_NIXL", "/nonexistent")
    node = machine()
    node.ctl("load", model(MIB), "m")
    relay = node.relay("nixl=yes\n", insecure=True)
    assert "/nonexistent" in relay.log.read_text()
    status, reply = ask(relay, "m", {"version": 1, "etag": etag_of(relay, "m")})
    assert status == 501
    assert "relay's machine" in reply["error"]
    assert "/nonexistent" in reply["error"]


def test_the_doctor_checks_nixl(machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the library that works, and says what is wrong with one that does not."""
    node = machine()

    def finding() -> tuple[str, str]:
        checks = json.loads(node.ctl("doctor", "--json", check=False).stdout)["checks"]
        return next((c["result"], c["what"]) for c in checks if c["check"] == "nixl")

    result, what = finding()
    assert result == "ok"
    assert os.environ["GPUSHM_NIXL"] in what
    monkeypatch.setenv("FAKENIXL_FAIL", "3")
    assert finding()[0] == "warn"
    monkeypatch.setenv("GPUSHM_NIXL", "/nonexistent")
    result, what = finding()
    assert result == "warn"
    assert "/nonexistent" in what
    monkeypatch.setenv("GPUSHM_NIXL", "")
    assert finding()[0] in ("ok", "warn")


def test_every_call_that_fails_is_survived(serving: tuple[Node, Relay], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of the relay's calls of NIXL fails once: an error, and the next puller is served."""
    _, relay = serving
    relay.end()
    n, granted = 0, False
    while not granted:
        n += 1
        monkeypatch.setenv("FAKENIXL_FAIL", str(n))
        relay.start()
        status, reply = ask(relay, "m", {"version": 1, "etag": etag_of(relay, "m")})
        # Where the mapping can't be registered there is a ring.
        granted = status == 200 and "pieces" in reply
        assert status == 200 or "NIXL" in reply["error"], reply
        begin(relay)
        relay.end()
    assert n > 5
    assert os.listdir(os.environ["FAKENIXL_DIR"])


# ---- pulls ----


def content(node: Node, name: str) -> str:
    """The digest that the load or pull left."""
    return json.dumps(node.attributes(name)["attrs"]["gpushm.content"])


def same(a: Node, b: Node) -> bool:
    """Whether two machines have the same contents, read back."""
    b.ctl("verify", "m")
    return content(a, "m") == content(b, "m")


def pull(node: Node, relay: Relay, *options: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """gpushmctl pull --via nixl of "m"."""
    return node.ctl("pull", "--via", "nixl", *options, relay.source("m"), check=check)


def gone() -> None:
    """Waits until no agent is left: the relay has freed what it had for NIXL."""
    until = time.monotonic() + TIMEOUT
    while (found := os.listdir(os.environ["FAKENIXL_DIR"])) and time.monotonic() < until:
        time.sleep(0.05)
    assert found == []


def names(node: Node) -> list[str]:
    """The buffers that it has."""
    return [b["name"] for b in json.loads(node.ctl("ls", "--json").stdout)]


def test_a_pull_by_nixl_brings_the_same_bytes(serving: tuple[Node, Relay], machine: Callable[..., Node]) -> None:
    """All of it comes by NIXL but the header, and the session ends with the pull."""
    node, relay = serving
    other = machine()
    before = node.bytes_sent()
    pull(other, relay)
    assert node.bytes_sent() - before < MIB
    assert same(node, other)
    gone()


def serve_by_a_ring(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    """Restarts the relay so that it can't register the mapping. The seventh call would."""
    relay.end()
    monkeypatch.setenv("FAKENIXL_FAIL", "7")
    relay.start()
    monkeypatch.delenv("FAKENIXL_FAIL")


def test_a_ring_brings_the_same_bytes(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the mapping can't be registered."""
    node, relay = serving
    other = machine()
    serve_by_a_ring(relay, monkeypatch)
    assert begin(relay)["slots"] > 0
    serve_by_a_ring(relay, monkeypatch)
    etag_of(relay, "m")
    pull(other, relay)
    assert same(node, other)


@contextmanager
def proxied(relay: Relay, unwell: Collection[int]) -> Iterator[tuple[str, list[int]]]:
    """A proxy before the relay that answers 502 to the POST requests of these numbers: its URL, and all statuses."""
    statuses: list[int] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self, body: bytes | None = None) -> None:
            c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=TIMEOUT)
            c.request(self.command, self.path, body, dict(self.headers.items()))
            reply = c.getresponse()
            self.answer(reply.status, reply.read(), reply.headers.items())
            c.close()

        def answer(self, status: int, body: bytes, headers: Iterable[tuple[str, str]] = ()) -> None:
            self.send_response_only(status)
            for key, value in headers:
                if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                    self.send_header(key, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_GET(self) -> None:
            self.forward()

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            statuses.append(502 if len(statuses) + 1 in unwell else 200)
            if statuses[-1] == 502:
                self.answer(502, b"<html>Bad Gateway</html>")
            else:
                self.forward(body)

    with ThreadingHTTPServer((BRIDGE, 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        try:
            yield f"http://{BRIDGE}:{server.server_port}", statuses
        finally:
            server.shutdown()


def test_a_pull_survives_a_proxy_that_fails_at_times(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It answers 502 to the request that begins, to one that fills, and to one that begins again."""
    node, relay = serving
    other = machine()
    serve_by_a_ring(relay, monkeypatch)
    etag_of(relay, "m")
    with proxied(relay, (1, 4, 6)) as (url, statuses):
        other.ctl("pull", "--via", "nixl", f"{url}/v1/buffers/m", "m")
    assert statuses.count(502) == 3, statuses
    assert same(node, other)


def test_a_pull_gives_up_on_a_proxy_that_keeps_failing(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is the proxy's, and nothing is left."""
    _, relay = serving
    other = machine()
    serve_by_a_ring(relay, monkeypatch)
    etag_of(relay, "m")
    with proxied(relay, range(3, 1 << 20)) as (url, statuses):
        done = other.ctl("pull", "--via", "nixl", "--patience", "2", f"{url}/v1/buffers/m", "m", check=False)
    assert done.returncode == 1
    assert "502 (Bad Gateway)" in done.stderr
    assert statuses.count(502) > 1
    assert names(other) == []


def test_a_fill_outside_ring_or_file_is_refused(serving: tuple[Node, Relay], monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers at and beyond each edge."""
    _, relay = serving
    relay.end()
    monkeypatch.setenv("FAKENIXL_FAIL", "7")
    relay.start()
    g = begin(relay)
    size, header, slots, room = g["size"], g["header"], g["slots"], g["slot"]

    def fill(slot: int, offset: int, n: int) -> int:
        body = {"session": g["session"], "fill": {"slot": slot, "offset": offset, "bytes": n}}
        return ask(relay, "m", body)[0]

    assert fill(0, header, room) == fill(slots - 1, size - 1, 1) == 200
    for bad in [
        (-1, header, 1),
        (slots, header, 1),
        (0, header - 1, 1),
        (0, size, 1),
        (0, size - 1, 2),
        (0, header, room + 1),
        (0, header, 0),
        (0, header, -1),
        (0, -1, 1),
        (0, 2**63 - 1, 2**63 - 1),
    ]:
        assert fill(*bad) == 400, bad


def test_a_pull_without_nixl_fails_and_says_where_it_is_missing(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is missing is an error that says where, and nothing is left."""
    node, other = machine(), machine()
    node.ctl("load", model(MIB), "m")
    relay = node.relay("", insecure=True)
    etag_of(relay, "m")
    done = pull(other, relay, check=False)
    assert done.returncode == 1
    assert "nixl=yes" in done.stderr
    relay = node.relay("nixl=yes\n", insecure=True)
    etag_of(relay, "m")
    monkeypatch.setenv("GPUSHM_NIXL", "/nonexistent")
    done = pull(other, relay, check=False)
    assert done.returncode == 1
    assert "this machine" in done.stderr
    assert "/nonexistent" in done.stderr
    assert names(other) == []


def test_a_wrong_byte_is_read_again_and_never_published(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read again; if it is wrong each time, the pull fails."""
    node, relay = serving
    other = machine()
    etag_of(relay, "m")
    monkeypatch.setenv("FAKENIXL_WRONG", "2")
    pull(other, relay)
    assert same(node, other)
    other.ctl("rm", "m")
    monkeypatch.setenv("FAKENIXL_WRONG", "-1")
    done = pull(other, relay, check=False)
    assert done.returncode == 1
    assert "digest" in done.stderr
    assert names(other) == []


def test_a_failed_call_of_the_puller_leaves_no_broken_buffer(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a session begins it is an error; later the session is begun again. Nothing leaks: the fake would abort."""
    node, other = machine(), machine()
    node.ctl("load", model(MIB // 2), "m")
    relay = node.relay("nixl=yes\n", insecure=True)
    etag_of(relay, "m")
    bad = 0
    for n in range(1, 16):
        monkeypatch.setenv("FAKENIXL_FAIL", str(n))
        done = pull(other, relay, check=False)
        assert done.returncode in (0, 1), done.stderr
        assert (names(other) == []) == (done.returncode == 1)
        if done.returncode:
            bad += 1
            assert "NIXL" in done.stderr
        else:
            assert same(node, other)
            other.ctl("rm", "m")
    assert 5 < bad < 15
    gone()


def pull_from_one_that_dies(to: Node, relay: Relay, dies: Callable[[], bool]) -> None:
    """The relay is killed at that moment of the pull, and restarted."""
    puller = to.start_ctl("pull", "--via", "nixl", relay.source("m"))
    while not dies() and puller.poll() is None:
        time.sleep(0.01)
    relay.end(signal.SIGKILL)
    relay.start(relay.port)
    _, errors = puller.communicate(timeout=TIMEOUT)
    assert puller.returncode == 0, errors


def test_a_pull_survives_a_relay_that_is_killed_and_restarted(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is restarted while the first session is read, and the pull goes on with another one."""
    node, other = machine(), machine()
    node.ctl("load", model(40 * MIB), "m")
    relay = node.relay("nixl=yes\n", insecure=True)
    etag_of(relay, "m")
    monkeypatch.setenv("FAKENIXL_DELAY_MS", "200")
    pull_from_one_that_dies(other, relay, lambda: has_session(relay))
    assert same(node, other)


def test_a_pull_survives_a_relay_that_dies_as_a_session_begins(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs in the request for the first one, in the seventh call, a registration, is killed, and restarted."""
    node, relay = serving
    other = machine()
    relay.end()
    monkeypatch.setenv("FAKENIXL_HANG", "7")
    relay.start(relay.port)
    monkeypatch.delenv("FAKENIXL_HANG")
    etag_of(relay, "m")
    pull_from_one_that_dies(other, relay, lambda: len(os.listdir(os.environ["FAKENIXL_DIR"])) == 2)
    assert same(node, other)


@pytest.mark.deep
def test_the_session_of_a_vanished_puller_is_ended(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The relay ends its session when nothing has named it for a while, and lets the buffer go."""
    node, other = machine(), machine()
    node.ctl("load", model(MIB), "m")
    relay = node.relay("nixl=yes\n", insecure=True)
    etag_of(relay, "m")
    monkeypatch.setenv("FAKENIXL_STALL", "1")
    puller = other.start_ctl("pull", "--via", "nixl", relay.source("m"))
    while len(os.listdir(os.environ["FAKENIXL_DIR"])) < 2 and puller.poll() is None:
        time.sleep(0.01)
    puller.kill()
    puller.wait()
    until = time.monotonic() + TIMEOUT
    # The killed puller's own socket stays.
    while len(os.listdir(os.environ["FAKENIXL_DIR"])) > 1 and time.monotonic() < until:
        time.sleep(0.05)
    assert len(os.listdir(os.environ["FAKENIXL_DIR"])) == 1
    assert names(other) == []


def test_an_interrupt_ends_a_pull_that_stalls(
    serving: tuple[Node, Relay], machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read that never ends is given up."""
    _, relay = serving
    other = machine()
    etag_of(relay, "m")
    monkeypatch.setenv("FAKENIXL_STALL", "1")
    puller = other.start_ctl("pull", "--via", "nixl", relay.source("m"))
    while len(os.listdir(os.environ["FAKENIXL_DIR"])) < 2 and puller.poll() is None:
        time.sleep(0.01)
    puller.send_signal(signal.SIGINT)
    puller.communicate(timeout=TIMEOUT)
    assert puller.returncode in (-signal.SIGINT, 130)
    assert names(other) == []
    gone()


GPU = "[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n"


@pytest.mark.parametrize("direct", [False, True])
def test_gpu_memory_arrives_right(
    machine: Callable[..., Node], model: Callable[..., Path], monkeypatch: pytest.MonkeyPatch, direct: bool
) -> None:
    """Over our own libcuda.so.1: through a ring, or registered as it is."""
    if not (BUILD / "fakecuda" / "libcuda.so.1").exists():
        pytest.skip("no fakecuda")
    monkeypatch.setenv("LD_LIBRARY_PATH", str(BUILD.resolve() / "fakecuda"))
    node, other = machine(pools=GPU), machine(pools=GPU)
    node.ctl("load", model(9 * MIB), "m")
    relay = node.relay("nixl=yes\n" + ("nixl-gpu=yes\n" if direct else ""), insecure=True)
    grant = begin(relay)
    assert ("pieces" in grant) == grant["memory"]["gpu"] == direct
    pull(other, relay)
    assert same(node, other)


def test_a_buffer_that_is_being_pulled_is_served_unchanged(
    serving: tuple[Node, Relay], machine: Callable[..., Node]
) -> None:
    """A relay that gets it itself fills the ring with each block as it comes."""
    node, relay = serving
    middle, last = machine(), machine()
    node.limit(up="40mbit")
    between = middle.relay(f"nixl=yes\n[pull m]\nsource={relay.source('m')}\n", insecure=True)
    grant = begin(between)
    assert grant["slots"] > 0
    assert ask(between, "m", {"session": grant["session"], "end": True})[0] == 200
    pull(last, between)
    assert same(node, last)


def test_a_pull_by_nixl_needs_a_certificate(fleet: Callable[..., list[Node]], model: Callable[..., Path]) -> None:
    """Metadata travel over the connection with both certificates."""
    node, other = fleet(2)
    node.ctl("load", model(3 * MIB), "m")
    relay = node.relay("nixl=yes\n")
    pull(other, relay)
    assert same(node, other)
    other.ctl("rm", "m")
    other.certificate = None
    assert pull(other, relay, check=False).returncode != 0
