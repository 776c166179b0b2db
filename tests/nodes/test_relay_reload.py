# SPDX-License-Identifier: MIT
"""SIGHUP: a relay takes another configuration over, whole or not at all, and transfers go on."""

from __future__ import annotations

import http.client
import re
import signal
import socket
import ssl
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from fake_relay import FakeRelay, Generation, Handler
from models import write_model
from relay_here import BUILD, TIMEOUT, Here

pytestmark = pytest.mark.skipif(not (BUILD / "gpushm-relay").exists(), reason="gpushm-relay is not built")

MIB = 1 << 20
AGAIN, AS_IT_WAS = "the configuration was read again", "the configuration stays as it was"


def reload(h: Here, config: str, expected: str = AGAIN) -> list[str]:
    """Replaces the configuration. Returns the lines that the relay says about it."""
    before = len(h.lines)
    h.config.write_text(f"[relay]\nlisten=127.0.0.1:0\n{config}")
    h.process.send_signal(signal.SIGHUP)
    await_line(h, expected, before)
    return h.lines[before:]


def await_line(h: Here, pattern: str, begin: int = 0) -> None:
    until = time.monotonic() + TIMEOUT
    while not any(re.search(pattern, line) for line in h.lines[begin:]):
        assert time.monotonic() < until, "".join(h.lines)
        time.sleep(0.02)


def names(h: Here) -> list[str]:
    return [b["name"] for b in h.ask("/v1/buffers").json["buffers"]]


@pytest.fixture
def source() -> Iterator[FakeRelay]:
    """A relay that has a buffer m."""
    relay = FakeRelay(Generation(16 * MIB))
    yield relay
    relay.close()


def test_other_names_are_offered_and_a_transfer_goes_on(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 100 * MIB)
    with Here() as h, h.raw() as s:
        for name in "a", "b":
            h.load(tmp_path / "f", name)
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        s.sendall(b"GET /v1/buffers/a HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        reply = http.client.HTTPResponse(s)
        reply.begin()
        first = reply.read(MIB)
        reload(h, "[offer]\nname=b\n")
        assert names(h) == ["b"]
        assert h.ask("/v1/manifests/a").status == 404
        assert len(first) + len(reply.read()) == int(reply.headers["Content-Length"])
        reload(h, "")
        assert names(h) == ["a", "b"]


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ("max-rate=fast\n", "a size"),
        ("cert=/nonexistent\nkey=/nonexistent\n", "cert= and ca="),
        ("[pull x]\n", "needs source="),
    ],
)
def test_a_wrong_configuration_changes_nothing(tmp_path: Path, config: str, words: str) -> None:
    write_model(tmp_path / "f", 1000)
    with Here("[offer]\nhide=b\n") as h:
        for name in "b", "a":
            h.ctl("load", tmp_path / "f", name)
        h.await_name("a")
        assert words in "".join(reload(h, config, AS_IT_WAS))
        assert names(h) == ["a"]
        h.config.unlink()
        h.process.send_signal(signal.SIGHUP)
        await_line(h, "No such file")
        assert names(h) == ["a"]


def test_what_is_read_at_the_start_is_told() -> None:
    with Here() as h:
        lines = "".join(reload(h, "max-connections=3\nmax-transfers=1\n"))
        assert "max-connections= is taken over at the next start" in lines
        assert "max-transfers" not in lines


def test_keys_of_an_older_version_are_told_and_change_nothing() -> None:
    with Here() as h:
        lines = "".join(reload(h, "min-rate=1M\nheader-time=1\nnixl-idle=no\n"))
        for key in "min-rate", "header-time", "nixl-idle":
            assert f"{key}= has no effect any more; delete it" in lines
        assert "read again" in lines


def test_a_daemon_that_hangs_does_not_keep_a_relay_from_ending(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 1000)
    with Here() as h:
        h.load(tmp_path / "f", "m")
        assert h.daemon.process
        h.daemon.process.send_signal(signal.SIGSTOP)
        h.process.send_signal(signal.SIGHUP)
        h.process.send_signal(signal.SIGTERM)
        try:
            assert h.process.wait(TIMEOUT) == 0
        finally:
            h.daemon.process.send_signal(signal.SIGCONT)


def test_a_reload_changes_the_certificates_and_who_is_allowed(
    authority: Authority, foreign: Authority, tmp_path: Path
) -> None:
    first, second = authority.issue("first", "IP:127.0.0.1"), foreign.issue("second", "IP:127.0.0.1")
    old, new = authority.issue("old", "DNS:old"), foreign.issue("new", "DNS:new")
    write_model(tmp_path / "f", 1000)

    def context(trust: Authority, shown: object) -> ssl.SSLContext:
        c = ssl.create_default_context(cafile=str(trust.cert))
        c.load_cert_chain(shown.cert, shown.key)  # type: ignore[attr-defined]
        return c

    tls = f"cert={first.cert}\nkey={first.key}\nca={authority.cert}\n"
    with Here("[allow old]\noffer=*\n", first=tls) as h:
        h.ctl("load", tmp_path / "f", "m")
        kept = h.connect(context(authority, old))

        def ask() -> int:
            kept.request("GET", "/v1/manifests/m", headers={"Prefer": "wait=50"})
            reply = kept.getresponse()
            reply.read()
            return reply.status

        assert ask() == 200
        # The key is not the certificate's.
        wrong = f"cert={second.cert}\nkey={first.key}\nca={foreign.cert}\n"
        assert "not the key" in "".join(reload(h, f"{wrong}[allow new]\noffer=*\n", AS_IT_WAS))
        assert ask() == 200
        reload(h, f"{tls}[allow new]\noffer=*\n")
        assert ask() == 403
        reload(h, f"{tls}[allow old]\noffer=*\n")
        assert ask() == 200
        reload(h, f"cert={second.cert}\nkey={second.key}\nca={foreign.cert}\n[allow new]\noffer=*\n")
        # The connection is as old as its certificate, which is checked again at once.
        assert ask() == 403
        assert h.ask("/v1/manifests/m", context=context(foreign, new)).status == 200
        kept.close()
        told = h.ask("/metrics", context=context(foreign, new)).body.decode()
        for file, ends in ("cert", second.cert), ("ca", foreign.cert):
            found = re.search(rf'certificate_end_timestamp_seconds{{file="{file}"}} (\d+)', told)
            assert found
            command = ["openssl", "x509", "-noout", "-enddate", "-in", str(ends)]
            said = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
            assert int(found[1]) == ssl.cert_time_to_seconds(said.removeprefix("notAfter="))
        # A client that goes by the names of authorities would not find its own among old ones.
        command = ["openssl", "s_client", "-connect", f"127.0.0.1:{h.port}"]
        said = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert "No client certificate CA names sent" in said.stdout


def test_a_certificate_that_has_ended_is_told(authority: Authority) -> None:
    old = authority.expired("ended", "IP:127.0.0.1")
    with Here(first=f"cert={old.cert}\nkey={old.key}\nca={authority.cert}\n") as h:
        await_line(h, f"{old.cert}: a certificate of this file has ended")
        command = [BUILD / "gpushm-relay", "--check-config", "--config", h.config]
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=True)
        assert "has ended" in done.stderr


def test_pulls_begin_end_and_go_on(source: FakeRelay) -> None:
    begun, go_on, broken = threading.Event(), threading.Event(), threading.Event()

    def stop_in_the_middle(handler: Handler, begin: int | None) -> bool:
        if begin and not go_on.is_set():
            begun.set()
            while not go_on.wait(0.1):
                handler.connection.settimeout(0.01)
                try:
                    if handler.connection.recv(1, socket.MSG_PEEK) == b"":
                        broken.set()
                        return True
                except OSError:
                    continue
            handler.connection.settimeout(TIMEOUT)
        return False

    source.before = stop_in_the_middle
    section = f"[pull m]\nsource={source.url}\n"
    with Here(section) as h:
        assert begun.wait(TIMEOUT)
        # The same section: the transfer is the same one.
        sent = source.sent
        reload(h, f"max-rate=1G\n[pull other]\nsource={source.url}-other\n{section}")
        assert names(h) == ["m"]
        assert not broken.is_set()
        # Without it the transfer ends, and nothing is left.
        reload(h, "")
        assert broken.wait(TIMEOUT)
        until = time.monotonic() + TIMEOUT
        while names(h) and time.monotonic() < until:
            time.sleep(0.05)
        assert names(h) == []
        go_on.set()
        reload(h, section)
        await_line(h, 'pulled "m"')
        # It is done, and another source is another pull.
        n = source.count("/v1/manifests/m")
        reload(h, f"max-rate=1G\n{section}")
        reload(h, section.replace("m\n", "m?again\n") + "mode=0644\n")
        await_line(h, "is here already")
        assert source.count("/v1/manifests/m") > n
        assert source.sent > sent


def test_a_silent_host_is_told_once_of_all_names(tmp_path: Path, source: FakeRelay) -> None:
    silent, ended = FakeRelay(Generation(1000)), threading.Event()

    def is_told(headers: Any) -> bool:
        return "If-None-Match" in headers and "Prefer" not in headers

    def named(relay: FakeRelay) -> set[str]:
        told = [headers["Gpushm-Relay"] for _, headers in relay.requests if is_told(headers)]
        return set(re.findall(r"/v1/buffers/(\w+)", " ".join(told)))

    silent.before = lambda handler, _: is_told(handler.headers) and ended.wait(TIMEOUT)
    write_model(tmp_path / "f", 1000)
    with Here(first="advertise=http://127.0.0.1:1\n") as h:
        for name in "abcz":
            h.load(tmp_path / "f", name)
        sections = "".join(f"[pull {name}]\nsource={silent.url}?{name}\n" for name in "abc")
        reload(h, f"{sections}[pull z]\nsource={source.url}\n")
        until = time.monotonic() + TIMEOUT
        while not named(source):
            assert time.monotonic() < until, "".join(h.lines)
            time.sleep(0.05)
        assert named(silent) == {"a"}
        ended.set()
    silent.close()
