# SPDX-License-Identifier: MIT
"""What gpushm-relay serves: files, ranges, conditions, lists, manifests, names; and a daemon that dies."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import quote

import numpy as np
import pytest
from models import write_model
from relay_here import BUILD, TIMEOUT, Here

safetensors = pytest.importorskip("safetensors")
gpushm = pytest.importorskip("gpushm")

MIB = 1 << 20
LESS_THAN_A_REQUEST = 20  # seconds, in which a request to a daemon that hangs is not over


@pytest.fixture(scope="module")
def here() -> Iterator[Here]:
    """One for all tests that leave it as it is."""
    with Here() as h:
        yield h


@pytest.fixture(scope="module")
def file(here: Here, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The bytes of the buffer "m" as gpushmctl save writes them."""
    folder = tmp_path_factory.mktemp("model")
    write_model(folder / "m.safetensors", 9 * MIB + 12345, tensors=7)
    here.load(folder / "m.safetensors", "m")
    here.ctl("save", "m", folder / "saved.safetensors")
    return (folder / "saved.safetensors").read_bytes()


# ---- files and ranges ----


def test_a_buffer_is_the_file_that_save_writes(here: Here, file: bytes) -> None:
    reply = here.ask("/v1/buffers/m")
    assert (reply.status, reply.headers["Accept-Ranges"]) == (200, "bytes")
    assert reply.body == file
    assert len(dict(safetensors.deserialize(reply.body))) == 7


def test_curl_gets_the_file(here: Here, file: bytes, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl")
    url = f"http://127.0.0.1:{here.port}/v1/buffers/m"
    for extra in [], ["--range", "0-"], ["--continue-at", "-"]:
        out = tmp_path / "out"
        if extra[:1] == ["--continue-at"]:
            out.write_bytes(file[:1000])
        subprocess.run(["curl", "-sSf", *extra, "-o", out, url], check=True, timeout=TIMEOUT)
        assert out.read_bytes() == file


@pytest.mark.parametrize(
    ("text", "begin", "end"),
    [
        ("bytes=0-0", 0, 1),
        ("bytes=5-100", 5, 101),
        ("bytes=100-", 100, None),
        ("bytes=-1", -1, None),
        ("bytes=-99999999999999999999999", 0, None),
        ("bytes=7-99999999999999999999999", 7, None),
        ("bytes=4194304-4194304", 4194304, 4194305),
        ("bytes=4000000-8999999", 4000000, 9000000),
        ("Bytes=1-2", 1, 3),
        ("bytes= 1-2 ", 1, 3),
    ],
)
def test_a_range_is_these_bytes(here: Here, file: bytes, text: str, begin: int, end: int | None) -> None:
    reply = here.ask("/v1/buffers/m", {"Range": text})
    first = begin if begin >= 0 else len(file) + begin
    last = (len(file) if end is None else end) - 1
    assert reply.status == 206
    assert reply.headers["Content-Range"] == f"bytes {first}-{last}/{len(file)}"
    assert reply.body == file[first : last + 1]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bytes",
        "bytes=",
        "bytes=-",
        "bytes=9-1",
        "bytes=a-b",
        "bytes=1-2,5-6",
        "lines=1-2",
        "bytes=1-2x",
        "bytes=--1",
    ],
)
def test_a_range_that_is_none_gets_the_whole_file(here: Here, file: bytes, text: str) -> None:
    reply = here.ask("/v1/buffers/m", {"Range": text})
    assert (reply.status, len(reply.body)) == (200, len(file))
    assert "Content-Range" not in reply.headers


@pytest.mark.parametrize("text", ["bytes={n}-", "bytes={n}-{n}", "bytes=99999999999999999999999-", "bytes=-0"])
def test_a_range_behind_the_end_is_416(here: Here, file: bytes, text: str) -> None:
    reply = here.ask("/v1/buffers/m", {"Range": text.format(n=len(file))})
    assert (reply.status, reply.headers["Content-Range"]) == (416, f"bytes */{len(file)}")


def test_head_says_what_get_sends(here: Here, file: bytes) -> None:
    head, get = here.ask("/v1/buffers/m", method="HEAD"), here.ask("/v1/buffers/m")
    assert (head.status, head.body) == (200, b"")
    assert {k: v for k, v in head.headers.items() if k != "Date"} == {
        k: v for k, v in get.headers.items() if k != "Date"
    }


# ---- conditions ----


def test_conditions_follow_the_etag(here: Here, file: bytes) -> None:
    etag = here.ask("/v1/buffers/m", method="HEAD").headers["ETag"]
    sha = hashlib.sha256(file[: 8 + int.from_bytes(file[:8], "little")]).hexdigest()[:16]
    assert etag.startswith('"xxh3-')
    assert etag.endswith(f'-{sha}"')

    def status(**headers: str) -> int:
        return here.ask("/v1/buffers/m", {k.replace("_", "-"): v for k, v in headers.items()}).status

    assert status(If_None_Match=etag) == 304
    assert status(If_None_Match=f'"x", W/{etag}') == 304
    assert status(If_None_Match='"x"') == 200
    assert status(If_None_Match="*") == 304
    assert status(If_Match=etag) == 200
    assert status(If_Match=f"W/{etag}") == 412
    assert status(If_Match='"x"') == 412
    assert status(If_Range=etag, Range="bytes=0-9") == 206
    assert status(If_Range='"x"', Range="bytes=0-9") == 200
    assert status(If_Range=f"W/{etag}", Range="bytes=0-9") == 200
    assert status(If_Range="Sun, 06 Nov 1994 08:49:37 GMT", Range="bytes=0-9") == 200


def test_a_digest_is_sent_if_it_is_wanted(here: Here, file: bytes) -> None:
    expected = f"sha-256=:{base64.b64encode(hashlib.sha256(file).digest()).decode()}:"
    for method in "GET", "HEAD":
        assert here.ask("/v1/buffers/m", {"Want-Repr-Digest": "sha-256=5"}, method).headers["Repr-Digest"] == expected
    assert here.ask("/v1/buffers/m", {"Want-Repr-Digest": "sha-256=0"}).headers["Repr-Digest"] is None
    assert here.ask("/v1/buffers/m").headers["Repr-Digest"] is None


def test_nobody_waits_for_a_digest_of_somebody_else(here: Here, tmp_path: Path) -> None:
    write_model(tmp_path / "large", 200 * MIB)
    here.load(tmp_path / "large", "large")
    stat = Path(f"/proc/{here.process.pid}/stat")

    def ticks() -> int:
        return int(stat.read_text().rpartition(")")[2].split()[11])

    with here.raw() as s:
        before = ticks()
        s.sendall(b"HEAD /v1/buffers/large HTTP/1.1\r\nHost: a\r\nWant-Repr-Digest: sha-256=1\r\n\r\n")
        while ticks() < before + 5:
            time.sleep(0.01)
        assert here.ask("/v1/buffers/large", {"Range": "bytes=1000000-1000009"}).status == 206
        assert not select.select([s], [], [], 0)[0]
        assert b"Repr-Digest" in s.recv(1000)
    here.ctl("rm", "large")


# ---- lists and manifests ----


def test_the_list_and_the_manifest_agree(here: Here, file: bytes) -> None:
    found = {b["name"]: b for b in here.ask("/v1/buffers").json["buffers"]}["m"]
    manifest = here.ask("/v1/manifests/m").json
    assert (found["size"], found["arrays"], found["complete"]) == (len(file), 7, True)
    assert found["url"] == "/v1/buffers/m"
    for key in "id", "etag", "content", "size":
        assert manifest[key] == found[key]
    assert manifest["header"] + manifest["data"] == len(file)
    assert manifest["header"] == 8 + int.from_bytes(file[:8], "little")
    assert len(base64.b64decode(manifest["blocks"])) == 8 * 3
    attributes = {k: base64.b64decode(v) for k, v in manifest["attributes"].items()}
    assert attributes["gpushm.content"].decode() == found["content"]
    assert not {"gpushm.files", "gpushm.path"} & attributes.keys(), "those are of this machine"


def test_a_list_maps_no_buffer_and_keeps_none(tmp_path: Path) -> None:
    metadata = {f"k{i}": "v" * 100 for i in range(1000)}
    tensor = {"dtype": "U8", "shape": [4], "data_offsets": [0, 4]}
    header = json.dumps({"__metadata__": metadata, "t": tensor}).encode()
    (tmp_path / "g").write_bytes(len(header).to_bytes(8, "little") + header + b"abcd")
    with Here() as h:
        write_model(tmp_path / "f", 9 * MIB)
        h.ctl("load", tmp_path / "f", "m")
        # Its header is not in its table alone: metadata that are too large for an attribute are an array.
        h.ctl("load", tmp_path / "g", "large")
        await_metric(h, "gpushm_relay_buffers", 2)
        found = {b["name"]: b for b in h.ask("/v1/buffers").json["buffers"]}
        assert "memfd:gpushm:host" not in Path(f"/proc/{h.process.pid}/maps").read_text()
        # The relay keeps what it reads for ten seconds.
        tries = 50
        while any(b["readers"] for b in json.loads(h.ctl("ls", "--json"))):
            time.sleep(0.1)
            tries -= 1
            assert tries, "a lease stays"
        for name in found:
            manifest = h.ask(f"/v1/manifests/{name}").json
            assert [found[name][key] for key in ("id", "size")] == [manifest[key] for key in ("id", "size")]
        assert found["m"]["etag"] == h.ask("/v1/buffers/m", method="HEAD").headers["ETag"]


def test_a_wait_ends_when_the_name_gets_other_contents(tmp_path: Path) -> None:
    with Here() as h:
        write_model(tmp_path / "a", 1000, seed=1)
        write_model(tmp_path / "b", 1000, seed=2)
        first = h.load(tmp_path / "a", "w")
        etag = first.headers["ETag"]
        assert h.ask("/v1/manifests/w", {"If-None-Match": etag}).status == 304
        assert h.ask("/v1/manifests/w", {"If-None-Match": etag, "Prefer": "wait=1"}).status == 304
        replies = []
        waiter = threading.Thread(
            target=lambda: replies.append(h.ask("/v1/manifests/w", {"If-None-Match": etag, "Prefer": "wait=50"}))
        )
        waiter.start()
        h.ctl("load", "--replace", tmp_path / "b", "w")
        waiter.join(TIMEOUT)
        assert replies[0].status == 200
        assert replies[0].json["content"] != first.json["content"]
        assert replies[0].json["id"] != first.json["id"]


def test_a_wait_for_a_name_that_does_not_come_is_404(here: Here) -> None:
    assert here.ask("/v1/manifests/nothing", {"Prefer": "wait=1"}).status == 404
    assert here.ask("/v1/buffers/nothing").status == 404


# ---- names ----


@pytest.mark.parametrize("name", ["a/b/c", "50% off", "gr\u00fc\u00dfe", "a b+c?d#e", "~/x", "m.v2:latest"])
def test_a_name_of_any_characters_is_found(here: Here, tmp_path: Path, name: str) -> None:
    write_model(tmp_path / "f", 1000)
    here.ctl("load", tmp_path / "f", name)
    here.await_name(quote(name, safe=""))
    listed = {b["name"]: b for b in here.ask("/v1/buffers").json["buffers"]}[name]
    for url in listed["url"], f"/v1/buffers/{quote(name, safe='')}":
        assert here.ask(url).status == 200, url
    here.ctl("rm", name)


@pytest.mark.parametrize(
    "name", ["m%", "m%2", "m%zz", "m%00", "m%00x", "%00", "x" * 1000, "m/", "m//", "..", "%2e%2e/m"]
)
def test_a_name_that_is_wrong_is_refused(here: Here, file: bytes, name: str) -> None:
    reply = here.ask(f"/v1/buffers/{name}")
    assert reply.status in (400, 404), reply.body[:100]
    assert reply.error


# ---- arrays ----


def arrays_of(body: bytes) -> dict[str, np.ndarray]:
    """The tensors of a file."""
    types = {"F32": "<f4", "I64": "<i8", "U8": "u1", "I32": "<i4"}
    return {
        name: np.frombuffer(t["data"], types[t["dtype"]]).reshape(t["shape"])
        for name, t in safetensors.deserialize(body)
    }


@pytest.mark.parametrize("pool", ["host"])
def test_arrays_with_strides_are_served_in_c_order(here: Here, pool: str) -> None:
    strided(here, pool)


def strided(here: Here, pool: str) -> None:
    """Arrays in Fortran order, with gaps, and with long rows, in ranges of all kinds."""
    client = gpushm.types.Connection(here.daemon.socket)
    shapes = {"f": ((300, 7, 50), "F", None), "g": ((1000, 3), "C", (32, 8)), "long": ((2, 1500000), "F", None)}
    for name, (shape, order, strides) in shapes.items():
        expected = np.arange(np.prod(shape), dtype=np.int64).reshape(shape)
        a = client.create(name, shape, "int64", order=order, **({"strides": strides} if strides else {}), pool=pool)
        np.asarray(a)[...] = expected
        a.publish("sealed")
        here.await_name(name)
        body = here.ask(f"/v1/buffers/{name}").body
        (found,) = arrays_of(body).values()
        assert np.array_equal(found, expected), name
        for begin, end in (0, 9), (len(body) // 2, len(body) // 2 + 70001), (len(body) - 3, len(body)):
            part = here.ask(f"/v1/buffers/{name}", {"Range": f"bytes={begin}-{end - 1}"})
            assert part.body == body[begin:end]
        a.close()
        client.unlink(name)
    client.close()


def test_tied_and_empty_arrays_are_as_save_has_them(here: Here, tmp_path: Path) -> None:
    text = json.dumps(
        {
            "__metadata__": {"tied": "a", "format": "pt"},
            "a": {"dtype": "F32", "shape": [1000], "data_offsets": [0, 4000]},
            "empty": {"dtype": "F32", "shape": [0, 5], "data_offsets": [4000, 4000]},
            "z": {"dtype": "U8", "shape": [3], "data_offsets": [4000, 4003]},
        }
    ).encode()
    data = np.arange(1000, dtype=np.float32).tobytes() + b"xyz"
    (tmp_path / "f").write_bytes(len(text).to_bytes(8, "little") + text + data)
    manifest = here.load(tmp_path / "f", "tied").json
    here.ctl("save", "tied", tmp_path / "saved")
    body = here.ask("/v1/buffers/tied").body
    assert body == (tmp_path / "saved").read_bytes()
    assert set(arrays_of(body)) == {"a", "empty", "z"}
    assert manifest["size"] == len(body)


def test_a_file_without_data_is_served(here: Here) -> None:
    client = gpushm.types.Connection(here.daemon.socket)
    a = client.create("empty", (0,), "float32")
    a.publish("sealed")
    a.close()
    client.close()
    here.await_name("empty")
    body = here.ask("/v1/buffers/empty").body
    (found,) = arrays_of(body).values()
    assert found.size == 0


def test_a_type_that_the_format_lacks_is_told(here: Here) -> None:
    client = gpushm.types.Connection(here.daemon.socket)
    a = client.create("complex", (4,), "complex128")
    a.publish("sealed")
    a.close()
    client.close()
    reply = here.ask("/v1/manifests/complex", {"Prefer": "wait=50"})
    assert reply.status == 501
    assert "complex128" in reply.error
    assert here.ask("/v1/buffers/complex").status == 501
    listed = {b["name"]: b for b in here.ask("/v1/buffers").json["buffers"]}["complex"]
    assert "complex128" in listed["why"]
    assert "url" not in listed


def test_a_shared_buffer_is_not_offered(here: Here) -> None:
    client = gpushm.types.Connection(here.daemon.socket)
    a = client.create("shared", (4,), "float32")
    a.publish("shared")
    b = client.create("sealed", (4,), "float32")
    b.publish("sealed")
    here.await_name("sealed")
    assert here.ask("/v1/buffers/shared").status == 404
    a.close()
    b.close()
    client.close()


# ---- requests that are wrong ----


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("PUT", "/v1/buffers/m", 405),
        ("DELETE", "/v1/buffers/m", 405),
        ("POST", "/v1/buffers/m", 405),
        ("OPTIONS", "/v1/buffers", 405),
        ("GET", "/v2/buffers", 404),
        ("GET", "/v1/buffersx", 404),
        ("GET", "/etc/passwd", 404),
        ("GET", "//v1/buffers", 404),
    ],
)
def test_a_wrong_request_gets_an_error(here: Here, method: str, path: str, status: int) -> None:
    reply = here.ask(path, method=method, body=b"x" * 100000 if method in ("PUT", "POST") else None)
    assert (reply.status, bool(reply.error)) == (status, True)


@pytest.mark.parametrize(
    ("lines", "version", "status"),
    [
        ("", "1.1", 400),
        ("Host: a\r\nHost: a\r\n", "1.1", 400),
        ("Host: a\r\nhost: b\r\n", "1.0", 400),
        ("Host : a\r\n", "1.1", 400),
        ("Host: a\r\nRange : bytes=0-0\r\n", "1.1", 400),
        ("Host: a\r\nX\t: 1\r\n", "1.1", 400),
        ("Host: a\r\n", "1.1", 200),
        ("Host:\r\n", "1.1", 200),
        ("", "1.0", 200),
    ],
)
def test_a_request_has_one_host_and_no_blank_before_a_colon(here: Here, lines: str, version: str, status: int) -> None:
    """RFC 9112, 3.2 and 5.1."""
    with here.raw() as s:
        s.sendall(f"GET / HTTP/{version}\r\n{lines}Connection: close\r\n\r\n".encode())
        assert s.recv(4096).split()[1:2] == [str(status).encode()]


RUBBISH = [
    b"\r\n\r\n",
    b"\0" * 10000,
    b"GET\r\n\r\n",
    b"GET / HTTP/9.9\r\n\r\n",
    b"GET " + b"/x" * 100000 + b" HTTP/1.1\r\n\r\n",
    b"GET /v1/buffers HTTP/1.1\r\nA: " + b"b" * 100000 + b"\r\n\r\n",
    b"GET /v1/buffers HTTP/1.1\r\n" + b"A: b\r\n" * 20000 + b"\r\n",
    b"GET /v1/buffers/m HTTP/1.1\r\nContent-Length: -5\r\n\r\n",
    b"GET /v1/buffers/m HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzzz\r\n",
    b"POST /v1/nixl/m HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999\r\n\r\n" + b"x" * 100000,
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x42" * 500,
    bytes(range(256)) * 40,
]


def test_rubbish_ends_its_connection_alone(here: Here, file: bytes) -> None:
    for text in RUBBISH:
        with here.raw() as s:
            try:
                s.sendall(text)
                s.shutdown(1)
                while s.recv(65536):
                    pass
            except OSError:
                pass  # it was ended before it was read
        assert here.ask("/v1/buffers/m", {"Range": "bytes=0-7"}).body == file[:8], text[:50]


# ---- the daemon ----


def test_a_name_is_never_missing_while_it_gets_other_buffers(here: Here) -> None:
    with gpushm.types.Connection(here.daemon.socket) as c:
        c.create("n", 16).publish("sealed")
        here.await_name("n")

        def replace() -> None:
            for _ in range(300):
                c.create("next", 16).publish_as("n", replace=True)

        with ThreadPoolExecutor(1) as pool:
            replaced, found = pool.submit(replace), set()
            while not replaced.done():
                found.add(here.ask("/v1/manifests/n").status)
        replaced.result()
        while (status := here.ask("/v1/manifests/n").status) == 503:
            pass
        c.unlink("n")
    assert found <= {200, 503} and status == 200


def test_a_buffer_is_served_to_its_end_after_it_was_unlinked(tmp_path: Path) -> None:
    with Here() as h:
        write_model(tmp_path / "f", 64 * MIB)
        h.load(tmp_path / "f", "u")
        expected = h.ask("/v1/buffers/u").body
        etag = h.ask("/v1/buffers/u", method="HEAD").headers["ETag"]
        c = h.connect()
        c.request("GET", "/v1/buffers/u")
        reply = c.getresponse()
        begin = reply.read(1000)
        h.ctl("rm", "u")
        # One that reads by ranges comes to the end, too.
        part = h.ask("/v1/buffers/u", {"Range": "bytes=5-9", "If-Range": etag})
        assert begin + reply.read() == expected
        assert part.status in (206, 404)
        c.close()


def test_a_replaced_file_can_be_read_to_its_end_by_ranges(tmp_path: Path) -> None:
    with Here() as h:
        write_model(tmp_path / "a", 9 * MIB, seed=1)
        write_model(tmp_path / "b", 9 * MIB, seed=2)
        etag = h.load(tmp_path / "a", "r").headers["ETag"]
        before = h.ask("/v1/buffers/r").body
        c = h.connect()
        c.request("GET", "/v1/buffers/r", headers={"Range": "bytes=0-", "If-Range": etag})
        reply = c.getresponse()
        h.ctl("load", "--replace", tmp_path / "b", "r")
        assert h.ask("/v1/manifests/r", {"Prefer": "wait=50", "If-None-Match": etag}).status == 200
        part = h.ask("/v1/buffers/r", {"Range": "bytes=5-9", "If-Range": etag})
        assert (part.status, part.body) == (206, before[5:10])
        assert h.ask("/v1/buffers/r").body != before
        assert reply.read() == before
        c.close()


def test_the_daemon_may_die_and_come_back(tmp_path: Path) -> None:
    with Here() as h:
        write_model(tmp_path / "f", 64 * MIB)
        h.load(tmp_path / "f", "d")
        expected = h.ask("/v1/buffers/d").body
        c = h.connect()
        c.request("GET", "/v1/buffers/d")
        reply = c.getresponse()
        begin = reply.read(1000)
        h.daemon.kill()
        assert begin + reply.read() == expected, "what is being served goes on"
        c.close()
        h.daemon.start()
        # This daemon keeps nothing.
        h.load(tmp_path / "f", "again")
        assert h.ask("/v1/buffers/again").body == expected
        h.daemon.kill()
        h.daemon.start()
        h.load(tmp_path / "f", "d")
        assert h.ask("/v1/buffers/d").body == expected


def test_a_buffer_that_is_known_to_be_damaged_is_not_served() -> None:
    with Here() as h:
        client = gpushm.types.Connection(h.daemon.socket)
        a = client.create("m", (MIB,), "uint8", pool="host", attrs={"gpushm.content": "xxh3:0123456789abcdef"})
        a.publish("sealed")
        # Its digests are computed for the manifest.
        for path in "manifests", "manifests", "buffers":
            reply = h.ask(f"/v1/{path}/m", {"Prefer": "wait=50"} if path == "manifests" else {})
            assert reply.status == 500, path
            assert "xxh3:0123456789abcdef" in reply.error
        a.close()
        client.close()


def test_a_relay_may_start_before_its_daemon(tmp_path: Path) -> None:
    with Here() as h:
        h.daemon.stop()
        await_status(h, 503)
        h.daemon.start()
        write_model(tmp_path / "f", 1000)
        h.load(tmp_path / "f", "late")


def await_status(h: Here, status: int) -> None:
    """Returns when the list has it."""
    end = time.monotonic() + TIMEOUT
    while h.ask("/v1/buffers").status != status:
        assert time.monotonic() < end, f"the list does not become {status}"
        time.sleep(0.05)


def test_without_its_daemon_a_relay_does_not_say_that_nothing_is_there() -> None:
    with Here() as h:
        await_status(h, 200)
        assert h.ask("/v1/buffers/nothing").status == 404
        h.daemon.kill()
        await_status(h, 503)
        for path in "buffers", "buffers/nothing", "manifests/nothing":
            reply = h.ask(f"/v1/{path}")
            assert (reply.status, "daemon" in reply.error) == (503, True), path
        assert h.ask("/metrics").status == 200
        h.daemon.start()
        await_status(h, 200)
        assert h.ask("/v1/buffers/nothing").status == 404


def test_a_transient_buffer_ends_although_it_was_served() -> None:
    with Here() as h:
        client = gpushm.types.Connection(h.daemon.socket)
        a = client.create("t", (1000,), "uint8", transient=True)
        a.publish("sealed")
        assert h.await_name("t").status == 200
        a.close()
        pause = threading.Event()
        while '"t"' in h.ctl("ls", "--json"):
            pause.wait(0.2)
        # The relay may hear of it a moment later.
        end = time.monotonic() + TIMEOUT
        while h.ask("/v1/manifests/t").status == 200 and time.monotonic() < end:
            pause.wait(0.2)
        assert h.ask("/v1/manifests/t", {"Prefer": "wait=1"}).status == 404
        client.close()


# ---- a daemon that hangs ----


@pytest.fixture
def hung() -> Iterator[Here]:
    """A relay that knows "u", which it has not opened, and reads "t", which it has; its daemon hangs, asked for "u"."""
    with Here() as h, h.raw() as reads, h.raw() as asks:
        client = gpushm.types.Connection(h.daemon.socket)
        arrays = [client.create(n, (64 * MIB,), "uint8", pool="host", transient=n == "t") for n in "tu"]
        for a in arrays:
            a.publish("sealed")
        await_metric(h, "gpushm_relay_buffers", 2)
        reads.sendall(b"GET /v1/buffers/t HTTP/1.1\r\nHost: a\r\n\r\n")
        assert reads.recv(1000).startswith(b"HTTP/1.1 200")
        h.daemon.signal(signal.SIGSTOP)
        try:
            asks.sendall(b"GET /v1/buffers/u HTTP/1.1\r\nHost: a\r\n\r\n")
            await_metric(h, "gpushm_relay_connections", 3)
            # Its buffer has no reader any more, and is transient: the relay closes it at once.
            reads.close()
            yield h
        finally:
            h.daemon.signal(signal.SIGCONT)
        for a in arrays:
            a.close()
        client.close()


def await_metric(h: Here, name: str, value: int) -> None:
    """Returns when the relay counts so many."""
    end = time.monotonic() + TIMEOUT
    while not re.search(rf"^{name} {value}$", h.ask("/metrics").body.decode(), re.MULTILINE):
        assert time.monotonic() < end, f"{name} is not {value}: {h.ask('/metrics').body.decode()}"
        time.sleep(0.05)


def end_a_slow_client(h: Here) -> None:
    with h.raw() as slow:
        slow.sendall(b"GET / HTTP/1.1\r\n")
        assert slow.recv(100) == b""


def test_a_relay_whose_daemon_hangs_ends_slow_clients_and_itself(hung: Here) -> None:
    end_a_slow_client(hung)
    hung.process.send_signal(signal.SIGTERM)
    assert hung.process.wait(LESS_THAN_A_REQUEST) == 0


def test_a_relay_whose_daemon_hangs_reloads(hung: Here) -> None:
    end_a_slow_client(hung)
    hung.config.write_text(hung.config.read_text() + "[offer]\nhide=*\n")
    hung.process.send_signal(signal.SIGHUP)
    end = time.monotonic() + LESS_THAN_A_REQUEST
    # The relay knows the ETag.
    while (status := hung.ask("/v1/buffers/t", {"If-None-Match": "*"}).status) == 304:
        assert time.monotonic() < end
    assert status == 404


def test_a_relay_whose_daemon_hangs_lets_a_client_go(hung: Here) -> None:
    end_a_slow_client(hung)
    with hung.raw() as asks, hung.raw() as waits:
        asks.sendall(b"GET /v1/buffers/u HTTP/1.1\r\nHost: a\r\n\r\n")
        waits.sendall(b"GET /v1/manifests/u HTTP/1.1\r\nHost: a\r\n\r\n")
        await_metric(hung, "gpushm_relay_connections", 4)
    await_metric(hung, "gpushm_relay_connections", 2)


# ---- configuration ----


def check_config(tmp_path: Path, text: str) -> subprocess.CompletedProcess[str]:
    """Runs gpushm-relay --check-config."""
    (tmp_path / "conf").write_text(text)
    command = [BUILD / "gpushm-relay", "--check-config", "--config", tmp_path / "conf"]
    return subprocess.run(command, text=True, capture_output=True, check=False, timeout=TIMEOUT)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[relai]\n", 'did you mean "relay"'),
        ("[relay]\nlisen=:1\n", 'did you mean "listen"'),
        ("listen=:1\n", "before any section; allowed: [relay], [offer], [allow NAME] or [pull NAME] first"),
        ("[relay]\nlisten=127.0.0.1:70000\n", "not ADDRESS:PORT"),
        ("[relay]\nlisten=127.0.0.1\n", "not ADDRESS:PORT"),
        ("[relay]\nlisten=0.0.0.0:19400\n", "insecure=yes"),
        ("[relay]\nmax-rate=fast\n", "a size"),
        ("[relay]\nmax-connections=0\n", "1 to 16384"),
        ("[relay]\ninsecure=maybe\n", "yes or no"),
        ("[relay]\ncert=/x\n", "go together"),
        ("[relay]\ncert=/nonexistent\nkey=/nonexistent\n", "/nonexistent: can't be read: No such file"),
        ("[allow *]\noffer=*\n", "needs cert="),
        ("[relay]\ninsecure=yes\nca=/etc/ssl/cert.pem\n", "ca= needs cert="),
        ("[allow]\noffer=*\n", "[allow NAME]"),
        ("[pull x]\nfollow=yes\n", "needs source="),
        ("[pull x]\nsource=a/b\nmode=999\n", "octal"),
        ("[pull x]\nsource=a.example.com\n", "[pull x]"),
        ("[pull x]\nsource=https://a.example.com/x\n", "no URL of a relay's buffer"),
        ("[relay]\nadvertise=b:1\n", "https://HOST:PORT"),
        ("[relay]\nadvertise=https://b:1/x\n", "https://HOST:PORT"),
        ("[pull x]\nsource=a/b\n[pull y]\nsource=a/b\n[pull x]\nsource=c/d\n", "two of [pull x]"),
        ("#" * ((1 << 20) + 1), "too large; allowed: 1048576 bytes"),
    ],
)
def test_a_wrong_configuration_is_told_with_its_line(tmp_path: Path, text: str, words: str) -> None:
    done = check_config(tmp_path, text)
    assert done.returncode == 1
    assert words in done.stderr


def test_the_example_is_right(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "systemd" / "gpushm-relay.conf"
    assert check_config(tmp_path, example.read_text()).returncode == 0
    text = "\n".join(
        line.lstrip("#") for line in example.read_text().splitlines() if re.match(r"#?[\[a-z-]+[=\]]|#\[", line)
    )
    found = check_config(tmp_path, text).stderr
    assert "/etc/gpushm" in found
    assert "unknown key" not in found
    assert "unknown section" not in found


def test_names_that_are_hidden_are_not_there(tmp_path: Path) -> None:
    with Here("[offer]\nname=models/*\nhide=*/secret\n") as h:
        write_model(tmp_path / "f", 1000)
        for name in "models/secret", "other", "models/a":
            h.ctl("load", tmp_path / "f", name)
        h.await_name("models/a")
        assert [b["name"] for b in h.ask("/v1/buffers").json["buffers"]] == ["models/a"]
        assert h.ask("/v1/buffers/other").status == 404
        assert h.ask("/v1/buffers/models/secret").status == 404


def test_other_machines_need_certificates(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("[relay]\nlisten=0.0.0.0:0\n")
    command = [BUILD / "gpushm-relay", "--config", tmp_path / "conf"]
    done = subprocess.run(command, text=True, capture_output=True, check=False, timeout=TIMEOUT, env=os.environ)
    assert done.returncode == 1
    assert "insecure=yes" in done.stderr
