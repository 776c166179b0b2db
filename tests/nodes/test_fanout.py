# SPDX-License-Identifier: MIT
"""Relays that pull: they serve what they have meanwhile, and send each other's readers on."""

from __future__ import annotations

import hashlib
import json
import signal
from collections.abc import Callable
from pathlib import Path

from node import Node, Relay
from pulling import MB, await_content, digest, finish, get, offer, pulling, sha256


def test_a_relay_pulls_a_buffer_and_offers_it(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    a, b, c = machine(), machine(), machine()
    file = model(10 * MB)
    first = offer(a, file)
    second = pulling(b, first.source("model"))
    third = pulling(c, second.source("model"), name="renamed")
    finish([b], file)
    finish([c], file, "renamed")
    # Equal on all machines, so that ranges of several of them mix.
    tags = {
        get(r.source(n), Range="bytes=0-0")[1]["etag"]
        for r, n in [(first, "model"), (second, "model"), (third, "renamed")]
    }
    assert len(tags) == 1
    assert sha256(first) == sha256(second) == sha256(third, "renamed")


def announced(url: str, since: int) -> dict[str, str]:
    """The header of a relay that says where it offers the file."""
    return {"Gpushm_Relay": f"{url}; since={since}"}


def slow_pull(machine: Callable[..., Node], file: Path) -> tuple[Node, Relay, Node, Relay]:
    """A source whose link is slow, and a relay that has some blocks of it and gets the others."""
    a, b = machine(), machine()
    first = offer(a, file)
    assert get(f"{first.url}/v1/manifests/model")[0] == 200
    a.limit(up="64mbit")
    second = pulling(b, first.source("model"))
    status, _, body = get(f"{second.url}/v1/manifests/model", Prefer="wait=60")
    assert status == 200
    assert json.loads(body)["complete"] is False
    return a, first, b, second


LATER, EARLIER = 99999999999999, 1
MINE = "http://10.83.255.254:1/v1/buffers/model"  # pytest's own address


def test_a_block_that_is_not_here_yet_is_waited_for(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(12 * MB)
    _, _, b, second = slow_pull(machine, file)
    for headers in ({}, announced(MINE, LATER)):
        status, _, body = get(second.source("model"), Range=f"bytes=-{MB}", **headers)
        assert status == 206
        assert body == file.read_bytes()[-MB:]
    finish([b], file)


def test_who_began_earlier_does_not_wait_but_is_sent_on(
    machine: Callable[..., Node], model: Callable[..., Path]
) -> None:
    file = model(12 * MB)
    _, _, b, second = slow_pull(machine, file)
    status, headers, body = get(second.source("model"), Range=f"bytes=-{MB}", **announced(MINE, EARLIER))
    assert status == 503, body
    assert headers["retry-after"] == "1"
    assert "link" not in headers
    # What it has is served: the header is always there.
    assert get(second.source("model"), Range="bytes=0-99", **announced(MINE, EARLIER))[0] == 206
    # The one that was sent away is known from now on.
    other = get(second.source("model"), Range=f"bytes=-{MB}", **announced("http://10.83.255.254:2/v1/buffers/y", 2))
    assert other[1]["link"] == f"<{MINE}>; rel=duplicate"
    finish([b], file)


def test_a_machine_can_announce_itself_only(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(MB)
    a = machine()
    first = offer(a, file)
    tag = get(first.source("model"), Range="bytes=0-0")[1]["etag"]

    def mirrors() -> list[str]:
        found: list[str] = json.loads(get(f"{first.url}/v1/manifests/model")[2])["mirrors"]
        return found

    for url in ("http://10.83.0.77:1/v1/buffers/model", "http://victim/v1/buffers/model", "nonsense"):
        get(first.source("model"), Range=f"bytes={MB // 2}-", **announced(url, 0))
        get(f"{first.url}/v1/manifests/model", If_None_Match=tag, **announced(url, 0))
    assert mirrors() == []
    # Another generation is no mirror of this one.
    get(f"{first.url}/v1/manifests/model", If_None_Match='"other"', **announced(MINE, 0))
    assert mirrors() == []
    assert get(f"{first.url}/v1/manifests/model", If_None_Match=tag, **announced(MINE, 0))[0] == 304
    assert mirrors() == [MINE]


def test_a_busy_relay_names_others(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(MB)
    a, b = machine(), machine()
    first = offer(a, file, "max-transfers=1\n")
    url = f"{MINE}-too"
    assert get(first.source("model"), Range=f"bytes={MB // 2}-", **announced(url, 0))[0] == 206
    # That one has its turn for another moment.
    out = b.run("curl", "-si", "-r", f"{MB // 2}-", first.source("model"), text=False).stdout
    assert out.startswith(b"HTTP/1.1 503 ")
    assert f"Link: <{url}>; rel=duplicate".encode() in out
    assert b"Retry-After: 1" in out
    # curl comes again by itself.
    args = ["curl", "-s", "--retry", "20", "--retry-delay", "1", "-o", b.daemon.folder / "out", "-w", "%{http_code}"]
    assert b.run(*args, first.source("model")).stdout.endswith("200")


def test_pulls_go_on_when_a_killed_source_comes_back(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(16 * MB)
    a, first, b, second = slow_pull(machine, file)
    c = machine()
    pulling(c, first.source("model"))
    first.end(signal.SIGKILL)
    a.unlimit()
    first.start(first.port)
    finish([b, c], file)
    assert second.process is not None
    assert second.process.poll() is None


def test_others_go_on_when_a_machine_of_the_chain_dies(
    machine: Callable[..., Node], model: Callable[..., Path]
) -> None:
    file = model(16 * MB)
    a, first, b, second = slow_pull(machine, file)
    c = machine()
    third = pulling(c, first.source("model"), config="")
    get(f"{third.url}/v1/manifests/model", Prefer="wait=60")
    second.end(signal.SIGKILL)
    a.unlimit()
    finish([c], file)
    second.start(second.port)
    finish([b], file)


def test_a_pull_ends_well_after_its_daemon_was_killed(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(16 * MB)
    a, _, b, second = slow_pull(machine, file)
    b.daemon.kill()
    b.daemon.start()
    a.unlimit()
    finish([b], file)
    assert sha256(second) == hashlib.sha256(get(second.source("model"))[2]).hexdigest()


def test_a_relay_that_was_restarted_announces_what_it_has(
    machine: Callable[..., Node], model: Callable[..., Path]
) -> None:
    file = model(MB)
    a, b = machine(), machine()
    first = offer(a, file)
    second = pulling(b, first.source("model"))
    finish([b], file)
    # The source knows nothing.
    first.end(signal.SIGKILL)
    first.start(first.port)
    second.end()
    second.start(second.port)
    while not (mirrors := json.loads(get(f"{first.url}/v1/manifests/model")[2])["mirrors"]):
        pass
    assert mirrors == [second.source("model")]


def test_two_relays_can_pull_from_each_other(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    file = model(6 * MB)
    a, b = machine(), machine()
    port = 19401
    first = pulling(a, f"http://{b.address}:{port}/v1/buffers/model")
    second = b.relay(
        f"[pull model]\nsource={first.source('model')}\n[pull own]\nsource=http://{b.address}:{port}/v1/buffers/own\n",
        insecure=True,
        port=port,
    )
    a.ctl("load", file, "model")
    finish([b], file)
    b.ctl("load", file, "own")
    assert sha256(second, "own") == sha256(first)


def test_followers_get_generation_after_generation(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    nodes = [machine() for _ in range(4)]
    a = nodes[0]
    first = offer(a, model(5 * MB, "generation0"))
    tail = pulling(nodes[1], first.source("model"), more="follow=yes\n")
    pulling(nodes[2], first.source("model"), more="follow=yes\n")
    # A follower of a follower.
    pulling(nodes[3], tail.source("model"), more="follow=yes\n")
    contents = set()
    for i in range(1, 5):
        file = model(5 * MB, f"generation{i}", seed=i)
        a.ctl("load", "--replace", file, "model")
        content = digest(a)
        contents.add(content)
        for node in nodes[1:]:
            await_content(node, content)
        finish(nodes[1:], file)
    assert len(contents) == 4
