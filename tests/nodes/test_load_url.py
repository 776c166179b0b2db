# SPDX-License-Identifier: MIT
"""gpushmctl load URL: a web server with faults, and one without."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path
from typing import Any

import pytest
from certificates import Authority
from models import write_model
from web import File, Request, Web

sys.path.insert(0, str(Path(__file__).parent.parent / "python"))

from daemon import BUILD, Daemon

MIB = 1 << 20
SIZE = 10 * MIB + 12345  # three blocks
SECRET = "s3cr3t-t0ken"  # nobody but its server may see it
NAME = "/models/m.safetensors"


@dataclass
class Machine:
    """Runs gpushmctl beside a daemon."""

    daemon: Daemon
    folder: Path

    def env(self, **env: str) -> dict[str, str]:
        """Without what the user of the tests has."""
        drop = re.compile(r"(GPUSHM|HF)_|.*_proxy$", re.IGNORECASE)
        kept = {k: v for k, v in os.environ.items() if not drop.match(k) or k == "GPUSHM_TRUST"}
        return kept | {"GPUSHM_SOCKET": self.daemon.socket, "HOME": str(self.folder)} | env

    def start(self, *arguments: object, **env: str) -> subprocess.Popen[str]:
        """A program of the build folder; its output is in pipes."""
        return subprocess.Popen(
            [BUILD / "gpushmctl", *map(str, arguments)],
            env=self.env(**env),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *arguments: object, **env: str) -> tuple[int, str, str]:
        """Its status and its output, in which no secret is."""
        with self.start(*arguments, **env) as child:
            try:
                out, err = child.communicate(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                raise
        assert SECRET not in out + err
        return child.returncode, out, err

    def load(self, *arguments: object, **env: str) -> dict[str, Any]:
        """What a load reports."""
        status, out, err = self.run("load", "--json", *arguments, **env)
        assert status == 0, err
        report: dict[str, Any] = json.loads(out)
        return report

    def fails(self, *arguments: object, **env: str) -> str:
        """What a load says that can't be. It leaves nothing behind."""
        status, out, err = self.run("load", *arguments, **env)
        assert status == 1, (out, err)
        assert not out
        assert err.count("\n") == 1
        assert arguments[-1] not in self.names()
        return err

    def names(self) -> list[str]:
        """The buffers."""
        return [b["name"] for b in json.loads(self.run("ls", "--json")[1])]


@pytest.fixture(scope="module")
def daemon() -> Iterator[Daemon]:
    """One for all tests."""
    daemon = Daemon("[pool host]\nkind=host\nsize=512M\n")
    yield daemon
    daemon.remove()


@pytest.fixture
def here(daemon: Daemon, tmp_path: Path) -> Iterator[Machine]:
    """This machine, which has no buffer afterwards."""
    machine = Machine(daemon, tmp_path)
    yield machine
    for name in machine.names():
        machine.run("rm", name)


@pytest.fixture
def web() -> Iterator[Callable[..., Web]]:
    """Makes servers."""
    with ExitStack() as stack:

        def make(**options: Any) -> Web:
            made = Web(**options)
            stack.callback(made.end)
            return made

        yield make


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A model of three blocks."""
    path = tmp_path_factory.mktemp("models") / "m"
    write_model(path, SIZE)
    return path.read_bytes()


@pytest.fixture(scope="module")
def digest(daemon: Daemon, data: bytes, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the buffer of that model has for its contents, loaded from a file."""
    path = tmp_path_factory.mktemp("files") / "m.safetensors"
    path.write_bytes(data)
    machine = Machine(daemon, path.parent)
    found = machine.load(path, "from-a-file")["digest"]
    machine.run("rm", "from-a-file")
    return str(found)


def secrets_of(web: Web) -> list[str]:
    """What the server was sent as a proof."""
    return [s.headers["authorization"] for s in web.seen if "authorization" in s.headers]


def once(fault: Callable[[Request], object], n: int = 1) -> Callable[[Request], object]:
    """A fault of the first n requests for parts behind the header."""
    left = [n]

    def run(request: Request) -> object:
        with request.web.lock:
            hits = bool(request.seen.first) and left[0] > 0
            left[0] -= hits
        return fault(request) if hits else False

    return run


# ---- what a server has ----


def test_a_file_is_read_by_ranges_of_one_version(here: Machine, web: Any, data: bytes, digest: str) -> None:
    w = web(files={NAME: File(data)})
    assert here.load(w.url + NAME, "m")["digest"] == digest
    assert {s.method for s in w.seen} == {"GET"}
    assert w.seen[0].first == 0
    assert all(s.first is not None for s in w.seen)
    etag = w.files[NAME].etag
    assert {s.headers.get("if-range") for s in w.seen[1:]} == {etag}
    assert {s.headers["accept-encoding"] for s in w.seen} == {"identity"}


@pytest.mark.parametrize("sized", [True, False])
def test_a_server_without_ranges_is_a_stream(here: Machine, web: Any, data: bytes, digest: str, sized: bool) -> None:
    w = web(files={NAME: File(data, ranges=False, sized=sized)})
    assert here.load(w.url + NAME, "m")["digest"] == digest
    assert len(w.seen) == 1


def test_a_stream_that_breaks_is_asked_for_again(here: Machine, web: Any, data: bytes, digest: str) -> None:
    def fault(request: Request) -> None:
        request.cut = 5 * MIB if request.number == 1 else None

    w = web(files={NAME: File(data, ranges=False)}, faults=[fault])
    assert here.load(w.url + NAME, "m")["digest"] == digest
    assert len(w.seen) == 2
    w.files[NAME] = File(data, ranges=False, etag=None, modified=None)
    w.seen.clear()
    assert "says no version" in here.fails(w.url + NAME, "n")


def test_a_stream_goes_on_in_its_version_alone(here: Machine, web: Any, data: bytes) -> None:
    """What is asked for again says that it is the same file, or it may be another one."""

    def fault(request: Request) -> None:
        if request.number == 1:
            request.cut = 5 * MIB
        else:
            w.files[NAME] = File(data[:-1] + b"x", ranges=False, etag=None, modified=None)

    w = web(files={NAME: File(data, ranges=False)}, faults=[fault])
    assert "changed while it was read" in here.fails(w.url + NAME, "m")


@pytest.mark.parametrize("validator", ["etag", "modified", "weak", "none"])
def test_any_validator_will_do(here: Machine, web: Any, data: bytes, digest: str, validator: str) -> None:
    file = File(data)
    if validator in ("modified", "none"):
        file.etag = None
    if validator == "weak":
        file.etag = f"W/{file.etag}"
    if validator in ("etag", "none"):
        file.modified = None
    w = web(files={NAME: file})
    assert here.load(w.url + NAME, "m")["digest"] == digest
    expected = {"etag": file.etag, "none": None}.get(validator, file.modified)
    assert {s.headers.get("if-range") for s in w.seen[1:]} == {expected}


def test_a_server_that_ignores_if_range_is_asked_without(here: Machine, web: Any, data: bytes, digest: str) -> None:
    def fault(request: Request) -> object:
        if "if-range" not in request.seen.headers:
            return False
        return request.reply(200, data, ETag=str(request.web.files[NAME].etag))

    w = web(files={NAME: File(data)}, faults=[fault])
    assert here.load(w.url + NAME, "m")["digest"] == digest


def test_an_index_brings_its_shards(here: Machine, web: Any, tmp_path: Path) -> None:
    shards, weights = {}, {}
    for i in range(3):
        name = f"model-{i} of 3.safetensors"
        write_model(tmp_path / name, 3 * MIB, seed=i)
        text = (tmp_path / name).read_bytes().replace(b'"layers.', b'"block%d.' % i, 3)
        length = int.from_bytes((tmp_path / name).read_bytes()[:8], "little")
        shards[f"/hub/{name.replace(' ', '%20')}"] = File(text)
        weights |= dict.fromkeys(json.loads(text[8 : 8 + length]), name)
    index = json.dumps({"metadata": {}, "weight_map": weights}).encode()
    path = "/hub/model.safetensors.index.json"
    w = web(files={path: File(index), **shards})
    whole = here.load(f"{w.url}{path}?sig={SECRET}", "m")
    assert whole["tensors"] == 9
    assert {s.query for s in w.seen} == {f"sig={SECRET}"}
    assert here.load(f"{w.url}/hub/", "folder")["digest"] == whole["digest"]
    w.files[path] = File(json.dumps({"weight_map": {"a": "../m.safetensors"}}).encode())
    assert "folder of its index" in here.fails(w.url + path, "n")
    w.files[path] = File(b"<html>")
    assert "not valid JSON" in here.fails(w.url + path, "n")


def test_a_folder_without_an_index_has_one_file(here: Machine, web: Any, data: bytes, digest: str) -> None:
    w = web(files={"/hub/model.safetensors": File(data)})
    assert here.load(f"{w.url}/hub/", "m")["digest"] == digest
    assert "404" in here.fails(f"{w.url}/nothing/", "n")


def test_some_tensors_of_a_file_are_some_ranges(here: Machine, web: Any, tmp_path: Path) -> None:
    path = tmp_path / "m"
    write_model(path, 40 * MIB, tensors=40)
    w = web(files={NAME: File(path.read_bytes())})
    only = ["--only=*.3.weight", "--only=*.4.weight", "--only=*.30.weight"]
    report = here.load(*only, w.url + NAME, "m")
    assert report["bytes"] == 3 * MIB
    assert here.load(*only, path, "n")["digest"] == report["digest"]
    asked = sum(int(s.headers["range"].rpartition("-")[2]) - (s.first or 0) + 1 for s in w.seen)
    assert asked < 4 * MIB


def test_checksums_are_compared_in_one_download(
    here: Machine, web: Any, data: bytes, digest: str, tmp_path: Path
) -> None:
    sums = tmp_path / "SHA256SUMS"
    sums.write_text(f"{hashlib.sha256(data).hexdigest()}  m.safetensors\n")
    w = web(files={NAME: File(data)})
    assert here.load("--sha256", sums, w.url + NAME, "m")["digest"] == digest
    sums.write_text(f"{hashlib.sha256(b'').hexdigest()}  m.safetensors\n")
    assert "SHA-256" in here.fails("--sha256", sums, w.url + NAME, "n")


# ---- if missing ----


def test_a_second_load_of_a_version_downloads_nothing(here: Machine, web: Any, data: bytes, digest: str) -> None:
    w = web(files={NAME: File(data)})
    assert here.load("--if-missing", w.url + NAME, "m")["attached"] is False
    w.seen.clear()
    again = here.load("--if-missing", f"{w.url}{NAME}?sig={SECRET}", "m")
    assert again["attached"] is True
    assert again["digest"] == digest
    assert len(w.seen) == 1
    # Another validator: what is there is compared with the server's.
    w.files[NAME].etag = '"another"'
    w.seen.clear()
    assert here.load("--if-missing", w.url + NAME, "m")["attached"] is True
    assert len(w.seen) > 1
    # Other contents: an error, or a new buffer.
    other = data[:-1] + bytes([data[-1] ^ 1])
    w.files[NAME] = File(other)
    status, _, err = here.run("load", "--if-missing", w.url + NAME, "m")
    assert status == 1
    assert "other contents" in err
    assert here.load("--if-missing", "--replace", w.url + NAME, "m")["digest"] != digest


def test_of_many_processes_one_downloads(here: Machine, web: Any, data: bytes, digest: str) -> None:
    w = web(files={NAME: File(data)})
    children = [here.start("load", "--json", "--if-missing", w.url + NAME, "m") for _ in range(4)]
    reports = []
    for child in children:
        with child:
            out, err = child.communicate(timeout=60)
        assert child.returncode == 0, err
        reports.append(json.loads(out))
    assert {r["digest"] for r in reports} == {digest}
    assert sorted(r["attached"] for r in reports) == [False, True, True, True]
    behind = [s for s in w.seen if s.first]
    assert sum(int(s.headers["range"].rpartition("-")[2]) - (s.first or 0) + 1 for s in behind) <= len(data)


def test_a_server_that_comes_back_is_asked_again(here: Machine, web: Any, data: bytes, digest: str) -> None:
    first = web(files={NAME: File(data)})

    def fault(request: Request) -> bool:
        if not request.seen.first:
            return False
        # Its port is free until the other one has it; what was asked for is lost.
        first.server.socket.close()
        gone.set()
        request.close_connection = True
        return True

    gone = threading.Event()
    first.faults.append(fault)
    with here.start("load", "--json", "--patience=20s", first.url + NAME, "m") as child:
        assert gone.wait(60)
        second = web(files={NAME: File(data)}, port=first.port)
        out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    assert json.loads(out)["digest"] == digest
    assert len(second.seen) > 0


def test_without_a_validator_it_is_compared(here: Machine, web: Any, data: bytes) -> None:
    w = web(files={NAME: File(data, etag=None, modified=None)})
    here.load(w.url + NAME, "m")
    w.seen.clear()
    assert here.load("--if-missing", w.url + NAME, "m")["attached"] is True
    assert len(w.seen) > 1


# ---- redirects and credentials ----


@pytest.mark.parametrize("how", ["file", "variable", "variable-file", "netrc"])
def test_a_redirect_gets_no_credentials(
    here: Machine, web: Any, data: bytes, digest: str, tmp_path: Path, how: str
) -> None:
    store = web(files={NAME: File(data)})
    home = web(faults=[lambda r: r.reply(302, Location=f"{store.url}{NAME}?sig={SECRET}")])
    (tmp_path / "token").write_text(f"{SECRET}\n")
    options: list[object] = ["--token-file", tmp_path / "token"] if how == "file" else []
    env = {"variable": {"GPUSHM_TOKEN": SECRET}, "variable-file": {"GPUSHM_TOKEN_FILE": str(tmp_path / "token")}}
    if how == "netrc":
        (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {SECRET}\n")
    assert here.load(*options, home.url + NAME, "m", **env.get(how, {}))["digest"] == digest
    proof = base64.b64encode(f"me:{SECRET}".encode()).decode() if how == "netrc" else SECRET
    assert secrets_of(home) == [f"{'Basic' if how == 'netrc' else 'Bearer'} {proof}"]
    assert secrets_of(store) == []
    # Where it leads to is remembered.
    assert len(home.seen) == 1
    assert {s.query for s in store.seen} == {f"sig={SECRET}"}


def test_a_link_that_expires_is_asked_for_again(here: Machine, web: Any, data: bytes, digest: str) -> None:
    store = web(files={NAME: File(data)})
    home = web(faults=[lambda r: r.reply(307, Location=f"{store.url}{NAME}?sig={r.number}")])
    store.faults.append(lambda r: r.seen.query == "sig=1" and r.seen.first and r.reply(403, b"<Error/>"))
    assert here.load(home.url + NAME, "m")["digest"] == digest
    assert len(home.seen) > 1


def test_a_link_of_the_user_that_expires_is_an_error(here: Machine, web: Any) -> None:
    w = web(faults=[lambda r: r.reply(403, b"<Error/>")])
    err = here.fails(f"{w.url}{NAME}?sig={SECRET}", "m")
    assert f"{w.url}{NAME}: the server answers 403" in err
    assert "may have expired" in err


def test_redirects_that_lead_nowhere_are_errors(here: Machine, web: Any) -> None:
    w = web(faults=[lambda r: r.reply(302, Location=f"{NAME}{r.number}?sig={SECRET}")])
    assert "redirects" in here.fails(w.url + NAME, "m")
    w.faults[:] = [lambda r: r.reply(302)]
    assert "no Location" in here.fails(w.url + NAME, "m")
    for where in ("file:///etc/passwd", "ftp://127.0.0.1/x", "https://u:p@127.0.0.1/x"):
        w.faults[:] = [lambda r, where=where: r.reply(302, Location=where)]
        assert "not an http:// or https:// URL" in here.fails(w.url + NAME, "m")


def test_a_token_goes_to_no_proxy_and_no_other_host(here: Machine, web: Any, data: bytes, digest: str) -> None:
    proxy = web()
    proxy.faults.append(lambda r: r.serve(File(data)) or True)
    env = {"http_proxy": proxy.url, "GPUSHM_TOKEN": SECRET, "HF_TOKEN": SECRET}
    assert here.load(f"http://models.test{NAME}", "m", **env)["digest"] == digest
    assert secrets_of(proxy) == []
    # This machine is asked without a proxy.
    own = web(files={NAME: File(data)})
    proxy.seen.clear()
    assert here.load(own.url + NAME, "n", **env)["digest"] == digest
    assert set(secrets_of(own)) == {f"Bearer {SECRET}"}
    assert proxy.seen == []
    # The Hub's token is for the Hub.
    own.seen.clear()
    here.load(own.url + NAME, "o", HF_TOKEN=SECRET)
    assert secrets_of(own) == []
    proxy.faults[:] = [lambda r: r.reply(401)]
    assert "https:// only" in here.fails(f"http://models.test{NAME}", "p", **env)


def test_bad_credentials_say_what_is_wrong(here: Machine, web: Any, tmp_path: Path) -> None:
    w = web(faults=[lambda r: r.reply(401, json.dumps({"error": "who are \x1b[2Jyou"}).encode())])
    err = here.fails(w.url + NAME, "m")
    assert "who are ?[2Jyou" in err
    assert "GPUSHM_TOKEN_FILE" in err
    assert "No such file" in here.fails("--token-file", tmp_path / "none", w.url + NAME, "m")
    (tmp_path / "token").write_text(f"\n{SECRET}\n")
    assert "no token" in here.fails("--token-file", tmp_path / "token", w.url + NAME, "m")
    (tmp_path / "token").write_text(f"{SECRET} {SECRET}\n")
    assert "printable" in here.fails("--token-file", tmp_path / "token", w.url + NAME, "m")
    assert "~/.netrc" in here.fails(f"http://me:{SECRET}@127.0.0.1:{w.port}{NAME}", "m")
    assert "no certificate for it" in here.fails("--key", tmp_path / "token", w.url + NAME, "m")


# ---- what goes wrong ----


def test_a_lost_range_goes_on_from_its_first_missing_byte(here: Machine, web: Any, data: bytes, digest: str) -> None:
    def fault(request: Request) -> None:
        request.cut = 1 * MIB + 7

    w = web(files={NAME: File(data)}, faults=[once(fault, 3)])
    assert here.load(w.url + NAME, "m")["digest"] == digest
    firsts = {s.first for s in w.seen}
    assert any(f + MIB + 7 in firsts for f in firsts if f)


def test_a_server_that_stalls_is_asked_again(here: Machine, web: Any, data: bytes, digest: str) -> None:
    def fault(request: Request) -> None:
        request.stall = 1000

    w = web(files={NAME: File(data)}, faults=[once(fault, 2)])
    assert here.load("--patience=2s", w.url + NAME, "m")["digest"] == digest

    def silence(request: Request) -> None:
        request.stall = 0

    w.faults[:] = [once(silence, 1000)]
    assert "nothing has come" in here.fails("--patience=1s", w.url + NAME, "n")


def test_what_is_of_no_use_is_not_waited_for(here: Machine, web: Any, data: bytes, digest: str) -> None:
    """The rest of the first reply, and the text of an error, come a byte at a time, which takes an hour."""

    def drip(request: Request, body: bytes, at_once: int) -> bool:
        request.wfile.write(body[:at_once])
        for byte in body[at_once:]:
            if request.web.ended.wait(0.05):
                break
            request.wfile.write(bytes([byte]))
        request.close_connection = True
        return True

    def slow_end(request: Request) -> bool:
        if request.number > 1:
            return False
        request.send_response(206)
        request.send_header("Content-Range", f"bytes 0-65535/{len(data)}")
        request.send_header("Content-Length", "65536")
        request.send_header("ETag", str(w.files[NAME].etag))
        request.end_headers()
        return drip(request, data[:65536], 4096)

    def slow_error(request: Request) -> bool:
        request.send_response(404)
        request.send_header("Content-Length", "65536")
        request.end_headers()
        return drip(request, b" " * 65536, 1)

    w = web(files={NAME: File(data)}, faults=[slow_end])
    assert here.load(w.url + NAME, "m")["digest"] == digest
    w.faults[:] = [slow_error]
    assert "404" in here.fails(w.url + NAME, "n")


def test_a_busy_server_is_asked_later(here: Machine, web: Any, data: bytes, digest: str) -> None:
    def fault(request: Request) -> bool:
        return request.number in (1, 3, 4) and request.reply(503, Retry_After="0")

    w = web(files={NAME: File(data)}, faults=[fault])
    assert here.load(w.url + NAME, "m")["digest"] == digest
    for later in ("3600", formatdate(time.time() + 3600, usegmt=True)):
        w.faults[:] = [lambda r, later=later: r.reply(503, Retry_After=later)]
        assert "busy" in here.fails("--patience=1s", w.url + NAME, "n")
    w.faults[:] = [lambda r: r.reply(500)]
    w.seen.clear()
    assert "500 (Internal Server Error)" in here.fails("--patience=5s", w.url + NAME, "n")
    assert len(w.seen) > 1


@pytest.mark.parametrize("how", ["etag", "modified", "longer", "shorter", "removed"])
def test_a_file_that_changes_is_an_error(here: Machine, web: Any, data: bytes, how: str) -> None:
    def fault(request: Request) -> bool:
        file = File(data)
        if how == "modified":
            file.etag = None
        if request.seen.first:
            if how == "etag":
                file.etag = '"new"'
            elif how == "modified":
                file.modified = "Mon, 07 Nov 1994 08:49:37 GMT"
            elif how == "longer":
                file = File(data + b"!", etag=file.etag)
            elif how == "shorter":
                file = File(data[:-1], etag=file.etag)
            else:
                return request.reply(404)
        request.serve(file)
        return True

    w = web(faults=[fault])
    expected = "404" if how == "removed" else "changed while it was read"
    assert expected in here.fails("--patience=1s", w.url + NAME, "m")


LIES: dict[str, dict[str, str]] = {
    "another part": {"Content-Range": "bytes 5-8/10000000"},
    "no part": {"Content-Range": "none"},
    "negative part": {"Content-Range": "bytes 9-8/10000000"},
    "beyond the end": {"Content-Range": "bytes 0-9/5"},
    "overflow": {"Content-Range": "bytes 0-99999999999999999999/99999999999999999999"},
    "a length that disagrees": {"Content-Length": "77"},
    "compressed": {"Content-Encoding": "gzip"},
    "several parts": {"Content-Type": "multipart/byteranges; boundary=x"},
    "no length of all": {"Content-Range": "bytes 0-65535/*"},
}


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("when", ["first", "later"])
def test_a_reply_that_lies_is_an_error(here: Machine, web: Any, data: bytes, lie: str, when: str) -> None:
    def fault(request: Request) -> None:
        if bool(request.seen.first) == (when == "later"):
            request.extra = LIES[lie]

    w = web(files={NAME: File(data)}, faults=[fault])
    err = here.fails("--patience=1s", w.url + NAME, "m")
    assert re.search(r"reply is wrong|changed while|ended a part", err), err


GARBAGE = [b"", b"hello\r\n\r\n", b"HTTP/1.1 206", b"\x00" * 500, b"HTTP/1.1 99999 x\r\n\r\n"]


@pytest.mark.parametrize("garbage", GARBAGE)
def test_what_is_no_http_is_an_error(here: Machine, web: Any, garbage: bytes) -> None:
    def fault(request: Request) -> bool:
        request.wfile.write(garbage)
        request.close_connection = True
        return True

    assert here.fails("--patience=1s", web(faults=[fault]).url + NAME, "m")


def test_what_is_no_model_is_an_error(here: Machine, web: Any, data: bytes) -> None:
    w = web(files={"/page": File(b"<html>" * 100), "/empty": File(b""), "/cut": File(data[:-1])})
    assert "is a web page" in here.fails(f"{w.url}/page", "m")
    w.files["/page"] = File(b"\xff" * 1000)
    assert "not a safetensors file" in here.fails(f"{w.url}/page", "m")
    assert "0 bytes" in here.fails(f"{w.url}/empty", "m")
    assert f"{w.url}/cut" in here.fails(f"{w.url}/cut", "m")
    w.files["/cut"] = File(data + b"more", ranges=False)
    assert f"{w.url}/cut" in here.fails(f"{w.url}/cut", "m")
    w.files["/cut"].sized = False
    assert "goes on" in here.fails(f"{w.url}/cut", "m")


def test_errors_name_the_url_and_what_to_do(here: Machine, web: Any) -> None:
    w = web()
    assert f"{w.url}/none: the server answers 404 (Not Found)" in here.fails(f"{w.url}/none?x={SECRET}", "m")
    w.end()
    w.ended.clear()
    assert "onnect" in here.fails(f"{w.url}/none?x={SECRET}", "m")
    assert "resolve" in here.fails(f"http://nowhere.invalid/none?x={SECRET}", "m")
    assert "port" in here.fails("http://127.0.0.1:99999/x", "m")
    assert here.run("load", "http://127.0.0.1/a", "http://127.0.0.1/b")[0] == 2


def stalling(web: Any, data: bytes) -> tuple[Web, threading.Semaphore]:
    """A server that stops in the middle of each range but the first one, and what is released then."""

    def fault(request: Request) -> None:
        if request.seen.first:
            request.stall = MIB
            waiting.release()

    waiting = threading.Semaphore(0)
    return web(files={NAME: File(data)}, faults=[fault]), waiting


def test_an_interrupted_load_ends_at_once(here: Machine, web: Any, data: bytes) -> None:
    w, waiting = stalling(web, data)
    with here.start("load", w.url + NAME, "m") as child:
        assert waiting.acquire(timeout=60)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    assert child.returncode != 0
    assert here.names() == []


def test_a_program_that_is_started_meanwhile_gets_no_connection(here: Machine, web: Any, data: bytes) -> None:
    w, waiting = stalling(web, data)
    with here.start("load", "--threads=1", w.url + NAME, "m") as child:
        assert waiting.acquire(timeout=60)
        process = Path(f"/proc/{child.pid}")
        inodes = {line.split()[9] for line in (process / "net/tcp").read_text().splitlines()[1:]}
        flags = [
            int(re.search(r"flags:\s+(\d+)", (process / "fdinfo" / fd.name).read_text())[1], 8)  # type: ignore[index]
            for fd in (process / "fd").iterdir()
            if os.readlink(fd).strip("socket:[]") in inodes
        ]
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=60)
    assert flags
    assert all(f & os.O_CLOEXEC for f in flags)


# ---- other places ----


def test_a_busy_server_names_others(here: Machine, web: Any, data: bytes, digest: str) -> None:
    other = web(files={NAME: File(data)})
    busy = web(files={NAME: File(data)})
    link = f'<{other.url}{NAME}>; rel="x duplicate"; pri=1, <{other.url}/y>; rel=next'
    busy.faults.append(lambda r: r.number > 1 and r.reply(503, Retry_After="1", Link=link))
    assert here.load("--patience=5s", busy.url + NAME, "m", GPUSHM_TOKEN=SECRET)["digest"] == digest
    assert len(other.seen) > 0
    assert secrets_of(other) == []
    # One that has another version is not believed.
    other.files[NAME] = File(b"x" * len(data))
    other.seen.clear()
    assert here.fails("--patience=1s", busy.url + NAME, "n")


# ---- TLS ----


def context(authority: Authority, name: str, *alternatives: str, client: Authority | None = None) -> ssl.SSLContext:
    """A server's, which wants a certificate of `client`."""
    own = authority.issue(name, *alternatives)
    ret = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    ret.load_cert_chain(own.cert, own.key)
    if client is not None:
        ret.load_verify_locations(client.cert)
        ret.verify_mode = ssl.CERT_REQUIRED
    return ret


def test_certificates_are_checked_on_both_sides(
    here: Machine, web: Any, data: bytes, digest: str, authority: Authority, foreign: Authority
) -> None:
    w = web(files={NAME: File(data)}, tls=context(authority, "server", "IP:127.0.0.1", client=authority))
    me = authority.issue("client")
    ours: list[object] = ["--cacert", authority.cert, "--cert", me.cert, "--key", me.key]
    assert here.load(*ours, w.url + NAME, "m")["digest"] == digest
    env = {"GPUSHM_TLS_CA": str(authority.cert), "GPUSHM_TLS_CERT": str(me.cert), "GPUSHM_TLS_KEY": str(me.key)}
    assert here.load(w.url + NAME, "n", **env)["digest"] == digest
    assert "$GPUSHM_TLS_CA" in here.fails(w.url + NAME, "o")
    assert "certificate" in here.fails("--cacert", foreign.cert, w.url + NAME, "o")
    assert "$GPUSHM_TLS_CERT" in here.fails("--cacert", authority.cert, w.url + NAME, "o")
    stranger = foreign.issue("stranger")
    wrong: list[object] = ["--cacert", authority.cert, "--cert", stranger.cert, "--key", stranger.key]
    assert here.fails(*wrong, w.url + NAME, "o")
    named = web(files={NAME: File(data)}, tls=context(authority, "server", "DNS:elsewhere"))
    assert "certificate" in here.fails("--cacert", authority.cert, named.url + NAME, "o")


def test_who_is_cut_off_before_a_reply_is_told_of_certificates(
    here: Machine, web: Any, data: bytes, authority: Authority
) -> None:
    """A server may close before its alert is read, and the system forgets what had come."""

    def reset(request: Request) -> bool:
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        os.close(request.connection.detach())
        return True

    w = web(files={NAME: File(data)}, faults=[reset], tls=context(authority, "server", "IP:127.0.0.1"))
    trusted: list[object] = ["--patience=1s", "--cacert", authority.cert]
    assert "if it wants a certificate" in here.fails(*trusted, w.url + NAME, "m")
    me = authority.issue("client")
    assert "certificate" not in here.fails(*trusted, "--cert", me.cert, "--key", me.key, w.url + NAME, "m")
    plain = web(files={NAME: File(data)}, faults=[reset])
    assert "certificate" not in here.fails("--patience=1s", plain.url + NAME, "m")


def test_a_connection_that_ends_in_garbage_is_made_again_with_pauses(
    here: Machine, web: Any, data: bytes, authority: Authority
) -> None:
    """A reply that begins well each time, and goes on with what is no TLS."""

    def fault(request: Request) -> bool:
        if not request.seen.first:
            return False
        first, last = request.seen.first, int(request.headers["Range"].rpartition("-")[2])
        request.send_response(206)
        request.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        request.send_header("ETag", str(w.files[NAME].etag))
        request.send_header("Content-Length", str(last + 1 - first))
        request.end_headers()
        os.write(request.connection.fileno(), b"HTTP/1.1 400 no TLS any more" * 100)
        request.close_connection = True
        return True

    w = web(files={NAME: File(data)}, faults=[fault], tls=context(authority, "server", "IP:127.0.0.1"))
    here.fails("--patience=2s", "--threads=1", "--cacert", authority.cert, w.url + NAME, "m")
    assert len(w.seen) < 20


def test_a_redirect_keeps_tls(here: Machine, web: Any, data: bytes, authority: Authority) -> None:
    plain = web(files={NAME: File(data)})
    w = web(faults=[lambda r: r.reply(302, Location=plain.url + NAME)], tls=context(authority, "s", "IP:127.0.0.1"))
    assert "without TLS" in here.fails("--cacert", authority.cert, w.url + NAME, "m")
    assert plain.seen == []


# ---- Python ----


def test_python_loads_urls(here: Machine, web: Any, data: bytes, digest: str, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    w = web(files={NAME: File(data)})
    code = f"""
import gpushm
how = gpushm.Transport(token_file={str(tmp_path / "token")!r}, patience=5)
with gpushm.load({w.url + NAME!r}, "m", transport=how) as b:
    print(b.attr("gpushm.content").decode())
try:
    gpushm.load({w.url + "/none"!r}, "n")
except FileNotFoundError as e:
    print(e)
def stop(done, total):
    raise KeyError
try:
    gpushm.load({w.url + NAME!r}, "n", progress=stop)
except KeyError:
    print([b.name for b in gpushm.ls()])
"""
    env = here.env(PYTHONPATH=str(BUILD / "python"))
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0] == digest
    assert "404" in lines[1]
    assert lines[2] == "['m']"
    assert f"Bearer {SECRET}" in secrets_of(w)


def test_a_load_to_a_gpu_can_be_canceled_amid_a_request(web: Any, tmp_path: Path) -> None:
    """It comes to an end also where a thread has taken more blocks than there are slots of pinned memory."""
    driver, go_on = {"LD_LIBRARY_PATH": str(BUILD / "fakecuda")}, tmp_path / "go on"
    if not (BUILD / "fakecuda/libcuda.so.1").exists():
        pytest.skip("no driver stands in for a GPU's")
    write_model(tmp_path / "m", 40 * MIB, tensors=1)
    w = web(files={NAME: File((tmp_path / "m").read_bytes())})
    daemon = Daemon("[pool gpu0]\nkind=vmm\ndevice=0\nsize=64M\n", **driver)
    machine = Machine(daemon, tmp_path)
    # The thread is not waiting for the server then: it copies a block, the second of ten.
    code = f"""
import gpushm, pathlib
before = 0
def stop(done, total):
    global before
    if done > 0 and done == before:
        pathlib.Path({str(go_on)!r}).touch()
        raise KeyError
    before = done
try:
    gpushm.load({w.url + NAME!r}, "m", pool="gpu0", transport=gpushm.Transport(threads=1), progress=stop)
except KeyError:
    print([b.name for b in gpushm.ls()])
"""
    hang = {"FAKECUDA_HANG": "2:cuMemcpyHtoDAsync", "FAKECUDA_HANG_UNTIL": str(go_on)}
    env = machine.env(PYTHONPATH=str(BUILD / "python"), **driver, **hang)
    try:
        done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    finally:
        daemon.remove()
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


# ---- a server that is not ours ----

NGINX = """
daemon off; {user} pid {here}/pid; error_log {here}/error; worker_processes 1;
events {{ worker_connections 128; }}
http {{
	access_log {here}/access; root {here}; sendfile on;
	client_body_temp_path {here}/t; proxy_temp_path {here}/t; fastcgi_temp_path {here}/t;
	uwsgi_temp_path {here}/t; scgi_temp_path {here}/t;
	server {{ listen 127.0.0.1:{port}; location /once/ {{ max_ranges 0; alias {here}/; }} }}
}}
"""


# "make deps" unpacks it, since an installed one would start.
WEB_SERVER = shutil.which("nginx", path=f"{os.environ.get('BUILD', 'build')}/nginx/usr/sbin:/usr/sbin:/usr/bin")


@pytest.mark.skipif(not WEB_SERVER, reason="no nginx")
def test_nginx_serves_models(here: Machine, data: bytes, digest: str, tmp_path: Path) -> None:
    import socket

    (tmp_path / "m.safetensors").write_bytes(data)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    user = "" if os.geteuid() else "user root root;"
    (tmp_path / "conf").write_text(NGINX.format(here=tmp_path, port=port, user=user))
    with subprocess.Popen([str(WEB_SERVER), "-e", tmp_path / "error", "-c", tmp_path / "conf"]) as server:
        try:
            url = f"http://127.0.0.1:{port}"
            while not (tmp_path / "pid").exists():
                assert server.poll() is None, (tmp_path / "error").read_text()
            assert here.load(f"{url}/m.safetensors", "m")["digest"] == digest
            assert here.load("--if-missing", f"{url}/m.safetensors", "m")["attached"] is True
            assert here.load(f"{url}/once/m.safetensors", "n")["digest"] == digest
            assert "404" in here.fails(f"{url}/none", "o")
        finally:
            server.terminate()


# ---- memory that comes back ----


def residence(here: Machine) -> str:
    """Where the bytes of m are."""
    return str(json.loads(here.run("stat", "--json", "m")[1])["residence"])


def test_an_evicted_buffer_is_loaded_again_from_its_url(here: Machine, web: Any, data: bytes, digest: str) -> None:
    w = web(files={NAME: File(data)})
    here.load("--keep=5m", w.url + NAME, "m")
    assert here.run("evict", "m")[0] == 0
    assert residence(here) == "source"
    w.files[NAME] = File(data[:-1] + bytes([data[-1] ^ 1]))
    status, _, err = here.run("promote", "m")
    assert status == 1 and "has the digest" in err
    del w.files[NAME]
    status, _, err = here.run("promote", "m")
    assert status == 1 and "put it back" in err and "404" in err
    assert residence(here) == "source"
    w.files[NAME] = File(data)
    assert here.run("promote", "m")[0] == 0
    assert residence(here) == "resident"
    assert digest in here.run("verify", "m")[1]


def test_a_process_that_is_killed_while_it_loads_again_is_followed_by_another(
    here: Machine, web: Any, data: bytes
) -> None:
    w = web(files={NAME: File(data)})
    here.load(w.url + NAME, "m")
    assert here.run("evict", "m")[0] == 0
    begun = threading.Event()

    def stall(request: Request) -> None:
        request.stall = 1000
        begun.set()

    w.faults.append(once(stall, 100))
    with here.start("promote", "m") as dying:
        assert begun.wait(60)
        w.faults.clear()
        with here.start("promote", "m") as waiting:
            dying.kill()
            assert waiting.wait(60) == 0
    assert residence(here) == "resident"
    assert here.run("verify", "m")[0] == 0
