# SPDX-License-Identifier: MIT
"""Pulls by NIXL, over our own libnixl_capi.so: what the relay grants, and what the puller makes of it."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from node import BUILD, TIMEOUT, Node, Relay

MIB = 1 << 20


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


def begin(relay: Relay, name: str = "m") -> Any:
    """A session."""
    status, grant = ask(relay, name, {"version": 1, "etag": etag_of(relay, name)})
    assert status == 200, grant
    return grant


def test_two_pullers_of_a_buffer_register_it_twice(serving: tuple[Node, Relay]) -> None:
    """The second grant has the metadata of the first one: one agent, one registration."""
    _, relay = serving
    a, b = begin(relay), begin(relay)
    assert a["session"] != b["session"]
    assert (a["metadata"], a["memory"], a["pieces"]) == (b["metadata"], b["memory"], b["pieces"])
    assert sum(n for _, n, _ in a["pieces"]) == 9 * MIB
    assert a["pieces"][0][0] == a["header"]


def test_a_session_that_ended_is_used(serving: tuple[Node, Relay]) -> None:
    """Its name means nothing any more; neither does one that never was, or is of another buffer."""
    node, relay = serving
    session = begin(relay)["session"]
    assert ask(relay, "m", {"session": session}) == (200, {})
    assert ask(relay, "other", {"session": session})[0] == 409
    assert ask(relay, "m", {"session": session, "end": True}) == (200, {})
    assert ask(relay, "m", {"session": session})[0] == 409
    assert ask(relay, "m", {"session": "0" * 32})[0] == 409


def test_a_request_that_is_nonsense_is_served(serving: tuple[Node, Relay]) -> None:
    """Each is told what is wrong, and the relay goes on."""
    _, relay = serving
    session = begin(relay)["session"]
    fill = {"slot": 0, "offset": 1 << 20, "bytes": 10}
    for body in ("", "[]", "{", {"version": 1}, {"etag": "x"}, {"session": session, "fill": fill}, {"session": session, "fill": 1}):
        assert ask(relay, "m", body)[0] == 400, body
    assert ask(relay, "m", {"version": 2, "etag": "x"})[0] == 501
    assert ask(relay, "nothing", {"version": 1, "etag": "x"})[0] == 404
    c = http.client.HTTPConnection(relay.node.address, relay.port, timeout=60)
    c.request("GET", "/v1/nixl/m")
    assert c.getresponse().status == 405
    c.close()
    assert ask(relay, "m", {"session": session}) == (200, {})


def test_one_address_takes_all_sessions(serving: tuple[Node, Relay]) -> None:
    """Four for each; those that end make room."""
    _, relay = serving
    sessions = [begin(relay)["session"] for _ in range(4)]
    status, reply = ask(relay, "m", {"version": 1, "etag": etag_of(relay, "m")})
    assert status == 503
    assert "sessions" in reply["error"]
    ask(relay, "m", {"session": sessions[0], "end": True})
    begin(relay)


def test_a_relay_serves_by_nixl_unasked(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    """Without nixl=yes it does not, and says why."""
    node = machine()
    node.ctl("load", model(MIB), "m")
    status, reply = ask(node.relay("", insecure=True), "m", {"version": 1, "etag": "x"})
    assert status == 501
    assert "nixl=yes" in reply["error"]


def test_a_relay_without_the_library_fails_silently(
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


def test_the_doctor_misses_nixl(machine: Callable[..., Node], monkeypatch: pytest.MonkeyPatch) -> None:
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
    node, relay = serving
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


def same(a: Node, b: Node, name: str = "m") -> bool:
    """Whether two machines have the same contents, read back."""
    b.ctl("verify", name)
    return bool(content(a, name) == content(b, name))


def content(node: Node, name: str) -> str:
    """The digest that the load or pull left."""
    found = [a for a in node.attributes(name)["attributes"] if a["key"] == "gpushm.content"]
    return json.dumps(found)


def pull(node: Node, relay: Relay, *options: object, check: bool = True) -> subprocess.CompletedProcess[str]:
    """gpushmctl pull --via nixl of "m"."""
    return node.ctl("pull", "--via", "nixl", *options, relay.source("m"), check=check)


def sessions(relay: Relay) -> int:
    """How many agents there are, by their sockets: the relay's, when no puller runs."""
    return len(os.listdir(os.environ["FAKENIXL_DIR"]))


def test_a_pull_by_nixl_brings_other_bytes(serving: tuple[Node, Relay], machine: Callable[..., Node]) -> None:
    """All of it comes by NIXL but the header, and the session ends with the pull."""
    node, relay = serving
    other = machine()
    before = node.bytes_sent()
    pull(other, relay)
    assert node.bytes_sent() - before < MIB
    assert same(node, other)
    gone(relay)


def gone(relay: Relay) -> None:
    """Waits until the relay has freed what it had for NIXL."""
    until = time.monotonic() + TIMEOUT
    while sessions(relay) and time.monotonic() < until:
        time.sleep(0.05)
    assert sessions(relay) == 0
