# SPDX-License-Identifier: MIT
"""Relays that pull, and what they serve."""

from __future__ import annotations

import hashlib
import http.client
import re
import subprocess
from pathlib import Path

from node import BUILD, TIMEOUT, Node, Relay

MB = 1 << 20


def offer(node: Node, model: Path, config: str = "", name: str = "model") -> Relay:
    """A machine that has the model, and a relay."""
    node.ctl("load", model, name)
    return node.relay(config, insecure=True)


def pulling(node: Node, source: str, *, config: str = "", name: str = "model", more: str = "") -> Relay:
    """A relay that pulls."""
    return node.relay(f"{config}[pull {name}]\nsource={source}\n{more}", insecure=True)


def get(url: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """One request."""
    host, path = re.fullmatch(r"http://([^/]+)(/.*)", url).groups()  # type: ignore[union-attr]
    c = http.client.HTTPConnection(host, timeout=TIMEOUT)
    c.request("GET", path, headers={k.replace("_", "-"): v for k, v in headers.items()})
    r = c.getresponse()
    body = r.read()
    c.close()
    return r.status, {k.lower(): v for k, v in r.getheaders()}, body


def sha256(relay: Relay, name: str = "model") -> str:
    """Of all that a relay sends; it may hear of the buffer a moment after it was published."""
    assert get(f"{relay.url}/v1/manifests/{name}", Prefer=f"wait={TIMEOUT}")[0] == 200
    status, _, body = get(relay.source(name))
    assert status == 200, body
    return hashlib.sha256(body).hexdigest()


def await_here(node: Node, name: str = "model") -> None:
    """Until the buffer is published on that machine."""
    node.ctl("wait", name, "--timeout", TIMEOUT)


def digest(node: Node, name: str = "model") -> str:
    """Of the contents of a buffer."""
    return str(node.attributes(name)["model"]["digest"])


def await_content(node: Node, content: str) -> None:
    """Until the model on that machine has this digest."""
    with node.start(
        *[BUILD / "gpushmctl", "watch", "model", "--timeout", TIMEOUT], env=node.env, stdout=subprocess.PIPE
    ) as watch:
        assert watch.stdout is not None
        for _ in watch.stdout:
            if digest(node) == content:
                watch.kill()
                return
    raise AssertionError("the generation has not come")


def finish(nodes: list[Node], model: Path, name: str = "model") -> None:
    """Waits for all, and compares all bytes."""
    expected = model.read_bytes()[-MB:]
    for node in nodes:
        await_here(node, name)
        node.ctl("verify", name)
        out = node.run(BUILD / "gpushmctl", "save", name, "-", env=node.env, text=False).stdout
        assert hashlib.sha256(out[-MB:]).digest() == hashlib.sha256(expected).digest()
