# SPDX-License-Identifier: MIT
"""The sections [pull NAME] of a relay: what it does about errors, and what others see of them."""

from __future__ import annotations

import itertools
import re
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_relay import FakeRelay, Generation, Handler
from here import BUILD, TIMEOUT
from models import write_model
from relay_here import Here

pytestmark = pytest.mark.skipif(not (BUILD / "gpushm-relay").exists(), reason="gpushm-relay is not built")


@pytest.fixture
def source() -> Iterator[FakeRelay]:
    """A relay that has a buffer m."""
    relay = FakeRelay(Generation(1000))
    yield relay
    relay.close()


def metric(h: Here, name: str) -> float:
    """What the relay counts."""
    found = re.search(rf"^gpushm_relay_{re.escape(name)} (.*)$", h.ask("/metrics").body.decode(), re.M)
    assert found, name
    return float(found[1])


def await_line(h: Here, pattern: str) -> str:
    """A line of the relay's log."""
    until = time.monotonic() + TIMEOUT
    while time.monotonic() < until:
        for line in list(h.lines):
            if re.search(pattern, line):
                return line
        time.sleep(0.05)
    raise AssertionError("".join(h.lines))


def test_what_is_missing_here_is_no_reason_to_wait_for_the_source(
    source: FakeRelay,
) -> None:
    """A pool that does not exist is the same errno as a buffer that the source does not have."""
    with Here(f"[pull m]\nsource={source.url}\npool=nowhere\n") as h:
        assert "[pull m]" in await_line(h, 'no pool "nowhere"')
        assert len(source.requests) < 20
        assert metric(h, 'pull_failures_total{cause="missing"}') > 0


def test_a_daemon_that_is_missing_is_told_and_waited_for(source: FakeRelay) -> None:
    with Here(f"[pull m]\nsource={source.url}\n", first="socket=/nonexistent/socket\n") as h:
        assert "no daemon there" in await_line(h, r"\[pull m\]")
        assert len(source.requests) < 20
        assert metric(h, 'pull_failures_total{cause="daemon"}') > 0


def test_a_source_that_is_away_is_told_while_it_is_waited_for(source: FakeRelay) -> None:
    begin = time.time()
    with Here(f"[pull m]\nsource={source.url}\nfollow=yes\n") as h:
        await_line(h, 'pulled "m"')
        assert begin - 1 <= metric(h, "last_pull_timestamp_seconds") <= time.time()
        assert metric(h, "sources_away") == 0
        port, first = source.port, h.await_name("m").json["etag"]
        source.close()
        await_line(h, r"\[pull m\]: .*; it is tried again")
        assert metric(h, "sources_away") == 1
        assert metric(h, 'pull_failures_total{cause="source"}') == 1
        other = FakeRelay(Generation(2000), port)
        h.ask("/v1/manifests/m", {"Prefer": "wait=50", "If-None-Match": first})
        assert metric(h, "sources_away") == 0
        other.close()


@pytest.mark.deep
def test_a_source_that_fails_for_long_is_asked_again_soon(source: FakeRelay) -> None:
    """The pause grew to half a minute, and the source may be well at any moment."""
    times: list[float] = []

    def fail(handler: Handler, _: int | None) -> bool:
        times.append(time.monotonic())
        handler.refuse(500, "not now")
        return True

    source.before = fail
    with Here(f"[pull m]\nsource={source.url}\n") as h:
        until = time.monotonic() + 2 * TIMEOUT
        # A pull asks four times.
        while len(times) < 9 * 4 and time.monotonic() < until:
            time.sleep(0.1)
        assert max(b - a for a, b in itertools.pairwise(times)) < 12
        source.before = lambda _h, _b: False
        await_line(h, 'pulled "m"')


def stop_in_the_middle(source: FakeRelay) -> tuple[threading.Event, threading.Event]:
    """The source sends the header, and waits. The events: it waits; it goes on."""
    begun, go_on = threading.Event(), threading.Event()

    def wait(handler: Handler, begin: int | None) -> bool:
        if begin:
            begun.set()
            go_on.wait(TIMEOUT)
        return False

    source.publish(Generation(16 << 20))
    source.before = wait
    return begun, go_on


def test_an_earlier_relay_gets_what_is_here_or_is_sent_away(source: FakeRelay) -> None:
    """One that does not wait for blocks that are not here gets what is here, or is sent away."""
    begun, go_on = stop_in_the_middle(source)
    with Here(f"[pull m]\nsource={source.url}\n", first="advertise=http://127.0.0.1:1/\n") as h:
        assert begun.wait(TIMEOUT)
        said = " ".join(headers.get("Gpushm-Relay", "") for _, headers in source.requests)
        assert "http://127.0.0.1:1/v1/buffers/m; since=" in said
        assert source.generation is not None
        header, size = len(source.generation.header), len(source.generation.file)
        earlier = {"Gpushm-Relay": "http://127.0.0.1:2/v1/buffers/m; since=1"}
        part = h.ask("/v1/buffers/m", earlier | {"Range": "bytes=0-65535"})
        assert part.status == 206
        assert part.headers["Content-Range"] == f"bytes 0-{header - 1}/{size}"
        assert part.body == source.generation.header
        for asked in ({"Range": f"bytes={header}-65535"}, {}):
            away = h.ask("/v1/buffers/m", earlier | asked)
            assert away.status == 503
            assert away.headers["Retry-After"] == "1"
        go_on.set()
        await_line(h, 'pulled "m"')
        assert h.ask("/v1/buffers/m", earlier).body == source.generation.file


def test_what_is_hidden_is_not_offered_while_it_is_pulled(source: FakeRelay) -> None:
    begun, go_on = stop_in_the_middle(source)
    with Here(f"[offer]\nhide=m\n[pull m]\nsource={source.url}\n") as h:
        assert begun.wait(TIMEOUT)
        offered, status = (
            h.ask("/v1/buffers").json["buffers"],
            h.ask("/v1/manifests/m").status,
        )
        go_on.set()
        assert (offered, status) == ([], 404)
        await_line(h, 'pulled "m"')


def test_a_client_that_has_gone_is_not_kept_waiting_for_blocks(source: FakeRelay) -> None:
    begun, go_on = stop_in_the_middle(source)
    with Here(f"[pull m]\nsource={source.url}\n") as h:
        assert begun.wait(TIMEOUT)
        for _ in range(5):
            with h.raw() as s:
                s.sendall(b"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nRange: bytes=8000000-9000000\r\n\r\n")
                assert b"206 Partial" in s.recv(65536)
        until = time.monotonic() + TIMEOUT / 4
        while (left := metric(h, "connections")) > 1 and time.monotonic() < until:
            time.sleep(0.1)
        go_on.set()
        assert left == 1
        await_line(h, 'pulled "m"')


def test_an_address_is_the_same_at_a_socket_of_all_addresses(tmp_path: Path) -> None:
    """There an address of IPv4 reads ::ffff:127.0.0.1: nobody says so of itself."""
    own = "http://127.0.0.1:7/v1/buffers/m"
    write_model(tmp_path / "f", 1 << 20)
    with Here(first="listen=[::]:0\ninsecure=yes\n") as h:
        h.load(tmp_path / "f", "m")
        h.port = int(await_line(h, r"serves http://\[::\]").rpartition(":")[2].rstrip("/\n"))
        assert h.ask("/v1/buffers/m", {"Gpushm-Relay": own, "Range": "bytes=500000-600000"}).status == 206
        assert h.ask("/v1/manifests/m").json["mirrors"] == [own]


# ---- circles ----

CIRCLE = r"\[pull m\]: .* gets it from this relay"


def await_via(h: Here, n: int) -> list[str]:
    """The relays that a reply about m says that it has come through, when it says so many."""
    until = time.monotonic() + TIMEOUT
    while len(found := re.findall(r"1\.1 (gpushm-\w+)", h.ask("/v1/manifests/m").headers.get("Via", ""))) != n:
        assert time.monotonic() < until, found
        time.sleep(0.05)
    return found


def test_only_a_source_that_gets_it_from_this_relay_is_a_circle(source: FakeRelay) -> None:
    """Only if this relay is among them. Those behind it are said on."""
    said = ""

    def refuse(handler: Handler, _: int | None) -> bool:
        handler.refuse(404, "not here yet", **({"Via": said} if said else {}))
        return True

    source.before = refuse
    with Here(f"[pull m]\nsource={source.url}\nfollow=yes\n") as h:
        own = await_via(h, 1)[0]
        said = "1.1 gpushm-a, HTTP/1.1 proxy, 1.1 gpushm-b"
        assert await_via(h, 3) == ["gpushm-a", "gpushm-b", own]
        assert not re.search(CIRCLE, "".join(h.lines))
        said = f"1.1 gpushm-a, 1.1 {own}, 1.1 gpushm-b"
        assert await_via(h, 2) == ["gpushm-b", own]
        await_line(h, CIRCLE)
        # It is too long to be one.
        said = "1.1 gpushm-a, " * 200
        await_via(h, 1)


def test_a_circle_of_three_relays_is_told(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 1 << 20)
    with Here() as first, Here() as second, Here() as third:

        def follow(h: Here, source: Here) -> None:
            pull = f"[pull m]\nsource=http://127.0.0.1:{source.port}/v1/buffers/m\nfollow=yes\n"
            h.config.write_text(f"[relay]\nlisten=127.0.0.1:0\n{pull}")
            h.process.send_signal(signal.SIGHUP)

        # A reply that says nothing new is not given for long: each must know its source when the next one asks.
        for n, (h, source) in enumerate([(second, third), (first, second), (third, first)], 1):
            follow(h, source)
            await_via(h, n)
        assert not re.search(CIRCLE, "".join(first.lines + second.lines))
        first.load(tmp_path / "f", "m")
        await_line(second, CIRCLE)
