# SPDX-License-Identifier: MIT
"""gpushmctl pull from a relay that lies, breaks, changes and vanishes: what is published is right, or nothing is."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_relay import BLOCK, FakeRelay, Generation, Handler
from here import BUILD, TIMEOUT, Here


@pytest.fixture(scope="module")
def machine_here() -> Iterator[Here]:
    found = Here()
    yield found
    found.daemon.remove()


@pytest.fixture
def here(machine_here: Here) -> Iterator[Here]:
    yield machine_here
    if names := machine_here.ctl("ls", "--names-only").stdout.splitlines():
        machine_here.ctl("rm", "-q", *names)


@pytest.fixture
def mortal() -> Iterator[Here]:
    """With a daemon that a test may kill."""
    found = Here()
    yield found
    found.daemon.remove()


@pytest.fixture
def relay() -> Iterator[FakeRelay]:
    found = FakeRelay(Generation())
    yield found
    found.close()


# ---- what a pull gives ----


def test_a_pulled_buffer_is_the_file_with_its_attributes(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    fingerprint = b'{"class":"a.B"}'
    relay.publish(Generation(attributes={"stage": b"prod", "gpushm.torch": fingerprint, "gpushm.source": b"0" * 64}))
    told = json.loads(here.ctl("pull", "--json", "--attr=mine=1", relay.url).stdout)
    assert told["name"] == "m"
    assert told["digest"] == f"xxh3:{relay.generation.content:016x}"  # type: ignore[union-attr]
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    attributes = here.attributes("m")
    assert attributes["stage"] == "prod"
    assert attributes["mine"] == "1"
    assert attributes["gpushm.torch"] == fingerprint.decode()
    # So a load of the same files finds it.
    assert attributes["gpushm.source"] == "0" * 64
    assert "gpushm.files" not in attributes
    here.ctl("verify", "-q", "m")


def test_own_attributes_and_a_new_name_win(here: Here, relay: FakeRelay) -> None:
    relay.publish(Generation(attributes={"stage": b"prod"}))
    here.ctl("pull", "-q", "--attr=stage=test", "--verify", relay.url, "models/new")
    assert here.attributes("models/new")["stage"] == "test"
    assert here.names() == ["models/new"]


def test_metadata_that_are_an_array_are_not_in_the_files_blocks(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    # The last block goes on with bytes that the relay's digests do not have.
    for size in (2 * BLOCK + 100, 2 * BLOCK):
        relay.publish(Generation(size, metadata={"long": "x" * 2000}))
        here.ctl("pull", "-q", "--replace", relay.url)
        here.ctl("verify", "-q", "m")
        assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
        # Its digest is not that of the file then, but it is known again.
        here.ctl("pull", "-q", "--if-missing", relay.url)


def test_a_name_with_strange_characters_is_encoded(here: Here, relay: FakeRelay) -> None:
    relay.publish(Generation(1000, name="a/b c%ä+"))
    here.ctl("pull", "-q", f"http://127.0.0.1:{relay.port}/v1/buffers/a/b%20c%25%C3%A4%2B")
    assert here.ctl("ls", "--names-only").stdout.splitlines() == ["a/b c%ä+"]


def test_a_buffer_named_like_an_index_is_pulled_as_a_buffer(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    relay.publish(Generation(1000, name="m.safetensors.index.json"))
    here.ctl("pull", "-q", relay.url)
    assert here.data_of("m.safetensors.index.json", tmp_path) == relay.generation.data  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("host", "there is no NAME"),
        ("host/", "there is no NAME"),
        ("/m", "no host's name"),
        ("user@host/m", "no host's name"),
        ("http://127.0.0.1/other/m", "no URL of a relay's buffer"),
        ("http://127.0.0.1:99999/v1/buffers/m", "port"),
        ("http://127.0.0.1/v1/buffers/m%zz", "not encoded"),
    ],
)
def test_a_source_that_is_none_says_what_to_write(here: Here, source: str, text: str) -> None:
    assert text in here.ctl("pull", source, code=1).stderr


# ---- lies ----


def edits() -> dict[str, Callable[[dict[str, Any]], object]]:
    """Manifests that contradict themselves, or the file."""
    return {
        "size": lambda m: m.update(size=m["size"] + 1),
        "huge size": lambda m: m.update(size=2**63, data=2**63 - m["header"]),
        "header": lambda m: m.update(header=m["header"] + 8, data=m["data"] - 8),
        "negative": lambda m: m.update(data=-1),
        "text for a number": lambda m: m.update(size="1"),
        "no blocks": lambda m: m.update(blocks=""),
        "too few blocks": lambda m: m.update(blocks=m["blocks"][:-16]),
        "no base64": lambda m: m.update(blocks="!" + m["blocks"][1:]),
        "content": lambda m: m.update(content="xxh3:0000000000000000"),
        "etag": lambda m: m.update(etag='"xxh3-0000000000000000-0000000000000000"'),
        "weak etag": lambda m: m.update(etag="W/" + m["etag"]),
        "version": lambda m: m.update(version=2),
        "missing": lambda m: m.clear(),
        "attribute": lambda m: m.update(attributes={"x": 5}),
        "key": lambda m: m.update(attributes={"": "YQ=="}),
        "too many attributes": lambda m: m.update(attributes={"x": "YWFh" * 2000}),
    }


@pytest.mark.parametrize("which", edits())
def test_a_manifest_that_lies_is_an_error_and_leaves_nothing(here: Here, relay: FakeRelay, which: str) -> None:
    relay.edit_manifest = edits()[which]
    done = here.ctl("pull", relay.url, code=1)
    assert done.stderr.startswith("gpushmctl: ")
    assert here.names() == []


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"null", b"\xff\xfe", b"[" * 100000, b'{"version":1}' * 2])
def test_a_manifest_that_is_no_manifest_is_an_error(here: Here, relay: FakeRelay, body: bytes) -> None:
    def lie(handler: Handler, first: int | None) -> bool:
        if first is not None:
            return False
        handler.reply(200, body, ETag='"x"')
        return True

    relay.before = lie
    assert "127.0.0.1" in here.ctl("pull", relay.url, code=1).stderr
    assert here.names() == []


def flip(data: bytes, at: int) -> bytes:
    """One bit of it differs."""
    return data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :]


def test_a_block_that_is_wrong_once_is_read_again(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    lies = [BLOCK + 5, 2 * BLOCK + 7]

    def lie(begin: int, data: bytes) -> bytes:
        for at in list(lies):
            if begin <= at < begin + len(data):
                lies.remove(at)
                data = flip(data, at - begin)
        return data

    relay.edit_range = lie
    here.ctl("pull", "-q", relay.url)
    assert lies == []
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    here.ctl("verify", "-q", "m")


def test_a_block_that_stays_wrong_is_an_error_with_its_place(here: Here, relay: FakeRelay) -> None:
    header = len(relay.generation.header)  # type: ignore[union-attr]
    wrong = header + BLOCK + 5
    relay.edit_range = lambda begin, data: flip(data, wrong - begin) if begin <= wrong < begin + len(data) else data
    text = here.ctl("pull", relay.url, code=1).stderr
    assert "127.0.0.1" in text
    assert "block 1" in text
    assert f"bytes {header + BLOCK} to {header + 2 * BLOCK - 1}" in text
    assert here.names() == []


def test_a_wrong_block_is_asked_of_another_machine(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    other = FakeRelay(relay.generation)
    relay.edit_manifest = lambda m: m.update(mirrors=[other.url])
    wrong = len(relay.generation.header) + 3  # type: ignore[union-attr]
    relay.edit_range = lambda begin, data: (
        flip(data, wrong - begin) if begin <= wrong < begin + len(data) and len(data) > 8 and begin > 0 else data
    )
    here.ctl("pull", "-q", relay.url)
    assert other.sent > 0
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    other.close()


def test_a_mirror_that_is_slow_delays_nobody(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    """It never stalls, but would take hours."""
    assert relay.generation is not None
    mirror, ended, asked = FakeRelay(relay.generation), threading.Event(), threading.Event()
    file, etag = relay.generation.file, relay.generation.etag

    def drip(handler: Handler, begin: int | None) -> bool:
        if begin is None:
            return False
        asked.set()
        end = min(int(handler.headers["Range"].rpartition("-")[2]) + 1, len(file))
        handler.send_response(206)
        handler.send_header("Content-Length", str(end - begin))
        handler.send_header("Content-Range", f"bytes {begin}-{end - 1}/{len(file)}")
        handler.send_header("ETag", etag)
        handler.end_headers()
        for at in range(begin, end, 1000):
            handler.wfile.write(file[at : min(at + 1000, end)])
            if ended.wait(0.2):
                break
        return True

    mirror.before = drip
    relay.edit_manifest = lambda m: m.update(mirrors=[mirror.url])
    here.ctl("pull", "-q", "--patience=3s", relay.url)
    assert here.data_of("m", tmp_path) == relay.generation.data
    assert asked.is_set()
    ended.set()
    mirror.close()


def test_a_mirror_of_another_file_is_left_out(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    other = FakeRelay(Generation(seed=9))
    relay.edit_manifest = lambda m: m.update(mirrors=[other.url, "http://127.0.0.1:1/v1/buffers/m", "file:///etc/x"])
    here.ctl("pull", "-q", relay.url)
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    other.close()


def test_a_header_that_is_not_the_etags_is_an_error(here: Here, relay: FakeRelay) -> None:
    # The tensors' names and types have no digest but this one.
    relay.edit_range = lambda begin, data: data.replace(b"layers.1", b"layers.7") if begin == 0 else data
    assert "header" in here.ctl("pull", relay.url, code=1).stderr
    assert here.names() == []


def test_a_server_without_ranges_is_no_relay(here: Here, relay: FakeRelay) -> None:
    relay.ranges = False
    assert "ranges" in here.ctl("pull", relay.url, code=1).stderr
    assert here.names() == []


# ---- breaks ----


def test_ranges_that_end_early_are_continued(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    rng = iter(range(10**6))
    relay.edit_range = lambda begin, data: data[: len(data) // 2] if next(rng) % 2 and len(data) > 1000 else data
    here.ctl("pull", "-q", relay.url)
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]


def test_a_relay_that_is_not_there_is_an_error(here: Here) -> None:
    gone = FakeRelay(Generation())
    gone.close()
    text = here.ctl("pull", gone.url, code=1).stderr
    assert f"127.0.0.1:{gone.port}" in text


def test_a_name_that_the_relay_has_not_is_not_found(here: Here, relay: FakeRelay) -> None:
    text = here.ctl("pull", relay.url + "x", code=3).stderr
    assert "there is no such buffer" in text


def test_a_buffer_that_can_not_be_offered_says_why(here: Here, relay: FakeRelay) -> None:
    def lie(handler: Handler, _: int | None) -> bool:
        handler.refuse(409, 'array "x": safetensors has no type complex128')
        return True

    relay.before = lie
    assert "complex128" in here.ctl("pull", relay.url, code=1).stderr


def test_a_relay_that_starts_again_is_waited_for(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    """It dies in the middle of the transfer, and is back at the same port."""
    blocked, died = threading.Event(), threading.Event()

    def lie(handler: Handler, first: int | None) -> bool:
        if first is None or first < 2 * BLOCK or died.is_set():
            return False
        blocked.set()
        died.wait(TIMEOUT)
        return False

    relay.before = lie
    pull = here.start("pull", "--threads=1", relay.url)
    assert blocked.wait(TIMEOUT)
    relay.close()
    died.set()
    again = FakeRelay(relay.generation, relay.port)
    assert pull.wait() == 0, pull.lines["err"].queue
    assert again.sent > 0
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    again.close()


def test_a_pull_begins_again_if_the_generation_changes(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    following = [Generation(seed=1), Generation(seed=2)]

    def lie(_: Handler, first: int | None) -> bool:
        # After the header was read.
        if first is not None and first >= BLOCK and following:
            relay.generation = following.pop()
        return False

    relay.before = lie
    here.ctl("pull", "-q", "--threads=1", relay.url)
    assert following == []
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    assert here.names() == ["m"]


def test_a_name_that_always_changes_is_given_up(here: Here, relay: FakeRelay) -> None:
    seeds = iter(range(1, 1000))

    def lie(handler: Handler, first: int | None) -> bool:
        if first is not None:
            relay.generation = Generation(1000, seed=next(seeds))
        return False

    relay.before = lie
    assert "changed" in here.ctl("pull", relay.url, code=1).stderr
    assert here.names() == []


# ---- the name here ----


def test_a_name_that_is_taken_stays(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    here.ctl("pull", "-q", relay.url)
    first = here.stat("m")["id"]
    text = here.ctl("pull", relay.url, code=1).stderr
    assert "--if-missing" in text
    here.ctl("pull", "-q", "--if-missing", relay.url)
    assert here.stat("m")["id"] == first
    relay.publish(Generation(seed=5))
    assert "other contents" in here.ctl("pull", "--if-missing", relay.url, code=1).stderr
    here.ctl("pull", "-q", "--if-missing", "--replace", relay.url)
    assert here.stat("m")["id"] != first
    assert here.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]


def test_a_pull_attaches_to_what_was_loaded_from_the_same_file(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(relay.generation.file)  # type: ignore[union-attr]
    here.ctl("load", "-q", path, "m")
    told = json.loads(here.ctl("pull", "--json", "--if-missing", relay.url).stdout)
    assert told["attached"]


def test_other_types_over_the_same_bytes_are_other_contents(here: Here, relay: FakeRelay, tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    path.write_bytes(relay.generation.file.replace(b'"U8"', b'"I8"'))  # type: ignore[union-attr]
    here.ctl("load", "-q", path, "m")
    assert "other contents" in here.ctl("pull", "--if-missing", relay.url, code=1).stderr


@pytest.mark.parametrize("options", [["--if-missing"], ["--if-missing", "--replace"]])
def test_of_many_pullers_one_pulls(here: Here, options: list[str]) -> None:
    relay = FakeRelay(Generation())
    if "--replace" in options:
        here.ctl("pull", "-q", relay.url)
        relay.publish(Generation(seed=3))
    before = relay.sent
    pulls = [here.start("pull", "--json", *options, relay.url) for _ in range(6)]
    told = []
    for pull in pulls:
        assert pull.wait() == 0, list(pull.lines["err"].queue)
        told.append(json.loads("".join(pull.lines["out"].queue)))
    assert len({one["id"] for one in told}) == 1
    assert sum(not one["attached"] for one in told) == 1
    # One file, and the header of each.
    assert relay.sent - before < 1.5 * len(relay.generation.file)  # type: ignore[union-attr]
    assert here.names() == ["m"]
    relay.close()


# ---- GPUs ----


@pytest.mark.skipif(not (BUILD / "fakecuda").exists(), reason="no driver stands in for a GPU's")
def test_a_pull_to_a_gpu_is_checked_block_by_block(relay: FakeRelay, tmp_path: Path) -> None:
    driver = {"LD_LIBRARY_PATH": str(BUILD / "fakecuda")}
    gpu = Here("[pool gpu0]\nkind=vmm\ndevice=0\nsize=256M\n", **driver)
    lies = [5, BLOCK + 5, 2 * BLOCK + 7]

    def lie(begin: int, data: bytes) -> bytes:
        for at in list(lies):
            if 0 < begin <= at < begin + len(data):
                lies.remove(at)
                data = flip(data, at - begin)
        return data

    relay.edit_range = lie
    gpu.ctl("pull", "-q", "--pool=gpu0", "--verify", relay.url)
    assert lies == [5]
    assert gpu.stat("m")["kind"] == "vmm"
    assert gpu.data_of("m", tmp_path) == relay.generation.data  # type: ignore[union-attr]
    gpu.daemon.remove()


# ---- the end of a pull ----


@pytest.fixture
def stuck(relay: FakeRelay) -> Iterator[threading.Event]:
    """The relay sends the header, and never the rest. The event: somebody waits for that."""
    asked, over = threading.Event(), threading.Event()

    def lie(handler: Handler, first: int | None) -> bool:
        if first is None or first < 2000:
            return False
        asked.set()
        over.wait(TIMEOUT)
        handler.reset()
        return True

    relay.before = lie
    yield asked
    over.set()


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_pull_that_is_ended_leaves_nothing(
    here: Here, relay: FakeRelay, stuck: threading.Event, how: signal.Signals
) -> None:
    pull = here.start("pull", relay.url)
    assert stuck.wait(TIMEOUT)
    assert pull.end(how) == -how
    assert here.names() == []


def test_an_interrupt_while_the_relay_never_replies_ends_the_pull(here: Here, relay: FakeRelay) -> None:
    asked, over = threading.Event(), threading.Event()

    def lie(handler: Handler, _: int | None) -> bool:
        asked.set()
        over.wait(TIMEOUT)
        handler.reset()
        return True

    relay.before = lie
    pull = here.start("pull", relay.url)
    assert asked.wait(TIMEOUT)
    assert pull.end() == -signal.SIGINT
    over.set()


def test_a_daemon_that_dies_is_an_error_of_its_own(mortal: Here, relay: FakeRelay) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def lie(_: Handler, first: int | None) -> bool:
        if first is not None and first >= 2000:
            asked.set()
            go_on.wait(TIMEOUT)
        return False

    relay.before = lie
    pull = mortal.start("pull", relay.url)
    assert asked.wait(TIMEOUT)
    mortal.daemon.kill()
    go_on.set()
    assert pull.wait() == 4, list(pull.lines["err"].queue)
    mortal.daemon.start()
    assert mortal.names() == []
