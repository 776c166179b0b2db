# SPDX-License-Identifier: MIT
"""Pulls from a real relay: through several machines, and with each part of it killed."""

from __future__ import annotations

import json
import queue
import random
import signal
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from fake_relay import FakeRelay, Generation, Handler
from here import BUILD, TIMEOUT, Here, Relay

pytestmark = pytest.mark.skipif(not (BUILD / "gpushm-relay").exists(), reason="gpushm-relay is not built")

SIZE = 24 << 20
SLOW = "max-rate=24M\n"  # so that there is a middle of a transfer


def write(
    path: Path,
    size: int = SIZE,
    seed: int = 0,
    metadata: dict[str, str] | None = None,
    *,
    aligned: bool = True,
) -> Path:
    """A model. If it is not aligned, a relay's file has its tensors in another order."""
    header: dict[str, Any] = {"__metadata__": metadata} if metadata else {}
    at = 0
    for name, dtype, bytes_each, share in (
        ("embed.weight", "BF16", 2, 0.5),
        ("none", "F32", 4, 0),
        ("odd", "I8", 1, 0.001),
        ("head.weight", "F32", 4, 0.4),
    ):
        count = int(size * share) // 8 * 8 + (0 if aligned or not share else 1)
        count //= bytes_each if aligned else 1
        header[name] = {
            "dtype": dtype,
            "shape": [count],
            "data_offsets": [at, at + count * bytes_each],
        }
        at += count * bytes_each
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + random.Random(seed).randbytes(at))
    return path


@pytest.fixture
def machines() -> Iterator[Callable[..., tuple[Here, Relay]]]:
    """Makes a machine with a relay."""
    made: list[tuple[Here, Relay]] = []

    def make(config: str = "", pools: str = "[pool host]\nkind=host\nsize=256M\n", **env: str) -> tuple[Here, Relay]:
        here = Here(pools, **env)
        made.append((here, Relay(here, config)))
        return made[-1]

    yield make
    for here, relay in made:
        if relay.running.process.returncode is None:
            relay.end(signal.SIGKILL)
        here.daemon.remove()


opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def get(relay: Relay, name: str) -> tuple[bytes, str]:
    """The file, and its ETag. A relay knows a buffer some ms after it was published."""
    manifest = relay.source(name).replace("/buffers/", "/manifests/")
    opener.open(urllib.request.Request(manifest, headers={"Prefer": "wait=30"}), timeout=TIMEOUT).close()
    with opener.open(relay.source(name), timeout=TIMEOUT) as reply:
        return reply.read(), reply.headers["ETag"]


@pytest.mark.parametrize(
    ("metadata", "aligned"),
    [
        (None, True),
        ({"alias": "head.weight", "format": "pt"}, True),
        ({"long": "ä" * 900}, True),
        (None, False),
    ],
)
def test_a_file_is_the_same_through_three_machines(
    machines: Callable[..., tuple[Here, Relay]],
    tmp_path: Path,
    metadata: dict[str, str] | None,
    aligned: bool,
) -> None:
    source = write(tmp_path / "m.safetensors", 16 << 20, metadata=metadata, aligned=aligned)
    (a, at_a), (b, at_b), (c, at_c) = machines(), machines(), machines()
    a.ctl("load", "-q", "--attr=stage=prod", source, "m")
    file, etag = get(at_a, "m")
    assert not aligned or file[-8000000:] == source.read_bytes()[-8000000:]
    b.ctl("pull", "-q", at_a.source("m"))
    c.ctl("pull", "-q", at_b.source("m"), "here/m")
    for here, relay, name in ((b, at_b, "m"), (c, at_c, "here/m")):
        assert get(relay, name) == (file, etag)
        here.ctl("verify", "-q", name)
        assert here.attributes(name)["stage"] == "prod"
        assert here.attributes(name)["gpushm.etag"] == etag
        here.ctl("pull", "-q", "--if-missing", at_a.source("m"), name)
        if not aligned:
            continue
        # All of it is what was loaded first.
        assert here.attributes(name)["gpushm.content"] == a.attributes("m")["gpushm.content"]
        told = json.loads(here.ctl("load", "--json", "--if-missing", source, name).stdout)
        assert told["attached"]


def test_a_gpus_buffer_goes_to_a_gpu(machines: Callable[..., tuple[Here, Relay]], tmp_path: Path) -> None:
    if not (BUILD / "fakecuda").exists():
        pytest.skip("no driver stands in for a GPU's")
    pools, driver = (
        "[pool gpu0]\nkind=vmm\ndevice=0\nsize=256M\n",
        {"LD_LIBRARY_PATH": str(BUILD / "fakecuda")},
    )
    (a, at_a), (b, at_b) = (
        machines(pools=pools, **driver),
        machines(pools=pools, **driver),
    )
    a.ctl("load", "-q", "--pool=gpu0", write(tmp_path / "m.safetensors"), "m")
    b.ctl("pull", "-q", "--pool=gpu0", "--verify", at_a.source("m"))
    assert b.stat("m")["kind"] == "vmm"
    assert get(at_a, "m") == get(at_b, "m")


def test_a_follower_waits_with_what_it_has(machines: Callable[..., tuple[Here, Relay]], tmp_path: Path) -> None:
    """Metadata that become an array, and then other metadata of the same tensors."""
    source = FakeRelay(Generation(1000, metadata={"a": "x" * 2000}))
    waits: queue.Queue[str] = queue.Queue()

    def note(handler: Handler, _: int | None) -> bool:
        if "wait=" in handler.headers.get("Prefer", "") and handler.headers.get("If-None-Match"):
            waits.put(handler.headers["If-None-Match"])
        return False

    source.before = note
    b, _ = machines("".join(f"[pull {name}]\nsource={source.url}\nfollow=yes\n" for name in "mn"))
    for metadata in ({"a": "x" * 2000}, {"a": "y" * 2000}, {"b": "1"}, {"b": "2"}):
        source.publish(Generation(1000, metadata=metadata))
        assert source.generation
        # Both wait with what they have, and ask no more until there is something else.
        heard = [waits.get(timeout=TIMEOUT)]
        while heard.count(source.generation.etag) < 2:
            heard.append(waits.get(timeout=TIMEOUT))
        b.ctl("wait", "--timeout=60", "m", "n")
        assert b.attributes("m")["gpushm.etag"] == b.attributes("n")["gpushm.etag"] == source.generation.etag
    assert len(source.requests) < 60
    source.close()


# ---- kills ----


def middle(rng: random.Random, pulling: Any) -> None:
    """Some moment of a transfer of half a second."""
    with suppress(subprocess.TimeoutExpired):
        pulling.process.wait(rng.uniform(0.02, 0.5))


def begun(here: Here, pulling: Any) -> None:
    """It has a buffer: before that, a relay that is not there ends it."""
    while not here.names() and pulling.process.poll() is None:
        time.sleep(0.01)


def test_a_pull_outlives_a_killed_relay(machines: Callable[..., tuple[Here, Relay]], tmp_path: Path) -> None:
    a, at_a = machines(SLOW)
    b, _ = machines()
    a.ctl("load", "-q", write(tmp_path / "m.safetensors"), "m")
    pull = b.start("pull", at_a.source("m"))
    begun(b, pull)
    middle(random.Random(1), pull)
    at_a.end(signal.SIGKILL)
    at_a.start()
    middle(random.Random(2), pull)
    at_a.end(signal.SIGTERM)
    at_a.start()
    assert pull.wait() == 0, list(pull.lines["err"].queue)
    b.ctl("verify", "-q", "m")


def test_a_buffer_replaced_during_a_pull_is_never_mixed(
    machines: Callable[..., tuple[Here, Relay]], tmp_path: Path
) -> None:
    a, at_a = machines(SLOW)
    b, _ = machines()
    files = [write(tmp_path / f"{i}.safetensors", seed=i) for i in range(3)]
    a.ctl("load", "-q", files[0], "m")
    pull = b.start("pull", at_a.source("m"))
    for file in files[1:]:
        middle(random.Random(3), pull)
        a.ctl("load", "-q", "--replace", file, "m")
    assert pull.wait() == 0, list(pull.lines["err"].queue)
    b.ctl("verify", "-q", "m")
    # One of the three: never a mixture.
    found = b.data_of("m", tmp_path)
    assert found in [file.read_bytes()[-len(found) :] for file in files]


def test_follow_outlives_generations_and_deaths(machines: Callable[..., tuple[Here, Relay]], tmp_path: Path) -> None:
    a, at_a = machines()
    b, at_b = machines(f"[pull m]\nsource={at_a.source('m')}\nfollow=yes\n")

    def follows() -> None:
        """As soon as it is there: the buffer of an earlier generation may be here first."""
        content = a.attributes("m")["gpushm.content"]
        end = time.monotonic() + TIMEOUT
        while "m" not in b.names() or b.attributes("m").get("gpushm.content") != content:
            assert time.monotonic() < end, "it does not come"
            time.sleep(0.05)

    for seed in range(4):
        a.ctl("load", "-q", "--replace", write(tmp_path / "m.safetensors", 4 << 20, seed), "m")
        follows()
    # The relay dies; a generation comes while it is away.
    at_a.end(signal.SIGKILL)
    a.ctl("load", "-q", "--replace", write(tmp_path / "m.safetensors", 4 << 20, 7), "m")
    at_a.start()
    follows()
    # The daemon there dies, and what it had.
    a.daemon.kill()
    a.daemon.start()
    a.ctl("load", "-q", write(tmp_path / "m.safetensors", 4 << 20, 8), "m")
    follows()
    # The daemon here dies, and what it had: a relay that starts looks what is there.
    b.daemon.kill()
    b.daemon.start()
    assert at_b.end() == 0
    at_b.start()
    follows()
    assert b.names() == ["m"]
    b.ctl("verify", "-q", "m")


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(10))
def test_a_kill_at_any_moment_leaves_a_whole_buffer_or_none(
    machines: Callable[..., tuple[Here, Relay]], tmp_path: Path, seed: int
) -> None:
    """Whatever dies, the buffer is there and right, or it is not there."""
    rng = random.Random(seed)
    a, at_a = machines(SLOW)
    b, _ = machines()
    path = write(tmp_path / "m.safetensors")
    a.ctl("load", "-q", path, "m")
    want = get(at_a, "m")
    begin = time.monotonic()
    while time.monotonic() - begin < 6:
        pull = b.start("pull", *rng.choice([[], ["--if-missing"], ["--replace"]]), at_a.source("m"))
        middle(rng, pull)
        victim = rng.choice(["pull", "relay", "relay stops", "there", "here", "none"])
        how = rng.choice([signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
        if victim == "pull" and pull.process.poll() is None:
            pull.process.send_signal(how)
        elif victim.startswith("relay"):
            at_a.end(signal.SIGKILL if victim == "relay" else signal.SIGTERM)
            at_a.start()
        elif victim in ("there", "here"):
            (a if victim == "there" else b).daemon.kill()
            (a if victim == "there" else b).daemon.start()
            if victim == "there":
                a.ctl("load", "-q", path, "m")
        status = pull.wait()
        errors = list(pull.lines["err"].queue)
        assert status in (0, 1, 3, 4, -how), (victim, errors)
        if status == 0 and victim != "here":
            b.ctl("verify", "-q", "m")
            assert get(at_a, "m") == want
        if b.names():
            assert b.names() == ["m"]
            b.ctl("verify", "-q", "m")
            b.ctl("rm", "-q", "m")
