# SPDX-License-Identifier: MIT
"""gpushm.pull() and gpushm.pull_wait(), from a fake relay and, for arrays with strides, from a real one."""

from __future__ import annotations

import errno
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_relay import FakeRelay, Generation, Handler
from here import BUILD, TIMEOUT, Here, Relay

sys.path.insert(0, str(BUILD / "python"))

gpushm = pytest.importorskip("gpushm")
np = pytest.importorskip("numpy")

FINGERPRINT = b'{"class":"a.B"}'


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    found = Here()
    yield found
    found.daemon.remove()


@pytest.fixture
def relay() -> Iterator[FakeRelay]:
    found = FakeRelay(Generation(1 << 20, attributes={"gpushm.torch": FINGERPRINT}))
    yield found
    found.close()


def test_a_buffer_is_pulled_once_and_waited_for(here: Here, relay: FakeRelay) -> None:
    connection, seen = gpushm.connect(here.daemon.socket), []
    with connection.pull(relay.url, progress=lambda done, total: seen.append((done, total))) as b:
        assert b.name == "m"
        assert seen[-1] == (1 << 20, 1 << 20)
        # What gpushm.torch.attach() compares.
        assert b.attr("gpushm.torch") == FINGERPRINT
        content = b.attr("gpushm.etag")
        with connection.pull(relay.url, if_missing=True) as again:
            assert again.id == b.id
    with pytest.raises(gpushm.errors.Exists):
        connection.pull(relay.url)
    with pytest.raises(gpushm.errors.Timeout):
        gpushm.pull_wait(relay.url, content, timeout=0.1)
    waiter = threading.Timer(0.1, relay.publish, [Generation(1000, seed=4)])
    waiter.start()
    gpushm.pull_wait(relay.url, content.decode(), timeout=TIMEOUT)
    waiter.join()
    with connection.pull(relay.url, "m", replace=True, attrs={"x": "1"}) as b:
        assert b.attr("x") == b"1"
        assert b.attr("gpushm.etag") == relay.generation.etag.encode()  # type: ignore[union-attr]
    connection.unlink("m")


def test_what_is_wrong_is_an_exception_of_its_own(here: Here, relay: FakeRelay) -> None:
    connection = gpushm.connect(here.daemon.socket)
    with pytest.raises(gpushm.errors.NotFound):
        connection.pull(relay.url + "x")
    with pytest.raises(gpushm.errors.BadArgument, match="no host's name"):
        connection.pull("user@host/m")
    # Neither is a daemon that has gone.
    with pytest.raises(gpushm.Error, match="it speaks no TLS: use a URL of http://") as plain:
        connection.pull(relay.url.removeprefix("http://").replace("/v1/buffers", ""))
    with pytest.raises(gpushm.Error, match="refused") as nobody:
        connection.pull("http://127.0.0.1:1/v1/buffers/m")
    assert not isinstance(plain.value, gpushm.errors.DaemonGone) and plain.value.errno == errno.EREMOTEIO
    assert not isinstance(nobody.value, gpushm.errors.DaemonGone) and nobody.value.errno == errno.EHOSTUNREACH
    with pytest.raises(ValueError, match="via"):
        connection.pull(relay.url, transport=gpushm.Transport(via="mail"))
    with pytest.raises(TypeError):
        connection.pull(relay.url, 5)
    with pytest.raises(TypeError):
        gpushm.pull_wait(relay.url, 5)
    # An attribute of somebody's buffer is no header line.
    with pytest.raises(gpushm.errors.BadArgument, match="ETag"):
        gpushm.pull_wait(relay.url, '"a"\r\nX-Evil: "b"', timeout=1)
    assert not any("x-evil" in key.lower() for _, headers in relay.requests for key in headers)
    relay.edit_range = lambda begin, data: bytes(len(data)) if begin else data
    with pytest.raises(gpushm.errors.BadContents, match=r"block 0 .* bytes \d+ to \d+"):
        connection.pull(relay.url)
    assert connection.ls() == []


def test_an_exception_of_progress_ends_a_pull(here: Here, relay: FakeRelay) -> None:
    connection, over = gpushm.connect(here.daemon.socket), threading.Event()

    def never(handler: Handler, _: int | None) -> bool:
        over.wait(TIMEOUT)
        handler.reset()
        return True

    def progress(_done: int, _total: int) -> None:
        raise KeyError("enough")

    relay.before = never
    with pytest.raises(KeyError, match="enough"):
        connection.pull(relay.url, progress=progress)
    over.set()
    assert connection.ls() == []


def test_an_interrupt_ends_a_wait(relay: FakeRelay) -> None:
    assert relay.generation
    main = threading.main_thread().ident
    assert main
    timer = threading.Timer(0.2, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        gpushm.pull_wait(relay.url, relay.generation.etag, timeout=TIMEOUT)
    timer.join()


def test_a_wait_names_the_file_that_is_missing(relay: FakeRelay, tmp_path: Path) -> None:
    assert relay.generation
    ca, begin = tmp_path / "ca.pem", time.monotonic()
    with pytest.raises(gpushm.errors.NotFound, match=r"ca\.pem"):
        gpushm.pull_wait(relay.url, relay.generation.etag, transport=gpushm.Transport(ca=str(ca)), timeout=TIMEOUT)
    assert time.monotonic() - begin < TIMEOUT / 2


def test_a_wait_outlives_a_file_that_vanishes_and_names_it(relay: FakeRelay, tmp_path: Path) -> None:
    assert relay.generation
    token, asked = tmp_path / "token", threading.Event()
    token.write_text("secret\n")

    def unchanged(handler: Handler, _: int | None) -> bool:
        asked.set()
        handler.reply(304)
        return True

    relay.before = unchanged
    threading.Thread(target=lambda: (asked.wait(TIMEOUT), token.unlink())).start()
    with pytest.raises(gpushm.errors.Timeout, match="token"):
        gpushm.pull_wait(relay.url, relay.generation.etag, transport=gpushm.Transport(str(token)), timeout=3)


def test_a_relay_that_always_says_not_modified_is_asked_with_pauses(relay: FakeRelay) -> None:
    def unchanged(handler: Handler, _: int | None) -> bool:
        handler.reply(304)
        return True

    relay.before = unchanged
    with pytest.raises(gpushm.errors.Timeout):
        gpushm.pull_wait(relay.url, timeout=1.5)
    assert relay.count("/v1/manifests/") <= 3


@pytest.mark.skipif(not (BUILD / "gpushm-relay").exists(), reason="gpushm-relay is not built")
def test_arrays_with_strides_arrive_in_c_order(here: Here) -> None:
    there = Here()
    relay = Relay(there)
    x = np.arange(60, dtype="float32").reshape(3, 4, 5).transpose(2, 0, 1)
    with gpushm.connect(there.daemon.socket).create_many("m", {}, nbytes=1000) as b:
        b.describe({"x": (x.shape, "float32", x.strides, 0)})
        np.asarray(b["x"])[...] = x
        b.set_attrs({"gpushm.torch": FINGERPRINT})
        b.publish()
    connection = gpushm.connect(here.daemon.socket)
    with connection.pull(relay.source("m"), "c") as b:
        assert b["x"].strides == (48, 16, 4)
        assert np.array_equal(np.asarray(b["x"]), x)
        assert b.attr("gpushm.torch") == FINGERPRINT
    connection.unlink("c")
    relay.end()
    there.daemon.remove()
