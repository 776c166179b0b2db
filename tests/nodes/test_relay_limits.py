# SPDX-License-Identifier: MIT
"""gpushm-relay's clients: certificates, too many of them, slow ones; and memory, also of GPUs."""

from __future__ import annotations

import resource
import select
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from certificates import Authority, Certificate
from models import write_model
from relay_here import BUILD, TIMEOUT, Here

MIB = 1 << 20
MEMORY_MAX = 64 * MIB  # of a transfer
GPU_MEMORY = 16 * MIB  # for transfers from GPUs


# ---- certificates ----


@pytest.fixture(scope="module")
def own(authority: Authority) -> Certificate:
    """The relay's certificate."""
    return authority.issue("relay", "DNS:localhost", "IP:127.0.0.1")


@pytest.fixture(scope="module")
def secure(authority: Authority, own: Certificate, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Here]:
    """A relay that lets some clients read some buffers."""
    tls = f"cert={own.cert}\nkey={own.key}\nca={authority.cert}\n"
    allow = "[allow *.train.example]\noffer=models/*\n[allow admin]\noffer=*\n[allow prometheus.example]\n"
    path = tmp_path_factory.mktemp("tls") / "f"
    write_model(path, 1000)
    with Here(allow, first=tls) as h:
        for name in "models/a", "other":
            h.ctl("load", path, name)
        yield h


def context(authority: Authority, shown: Certificate | None) -> ssl.SSLContext:
    """What a client trusts and shows."""
    c = ssl.create_default_context(cafile=str(authority.cert))
    if shown:
        c.load_cert_chain(shown.cert, shown.key)
    return c


def test_a_client_reads_what_its_certificate_allows(secure: Here, authority: Authority) -> None:
    trainer = context(authority, authority.issue("t", "DNS:n1.train.example"))
    admin = context(authority, authority.issue("admin"))
    wait = {"Prefer": "wait=50"}
    assert secure.ask("/v1/manifests/models/a", wait, context=trainer).status == 200
    assert secure.ask("/v1/buffers/models/a", context=trainer).status == 200
    assert secure.ask("/v1/manifests/other", wait, context=admin).status == 200
    for path in "buffers", "manifests":
        reply = secure.ask(f"/v1/{path}/other", context=trainer)
        assert (reply.status, "n1.train.example" in reply.error) == (403, True)
    # Whether a name exists is not told either.
    assert secure.ask("/v1/buffers/nothing", context=trainer).status == 403

    def names(shown: ssl.SSLContext) -> list[str]:
        return [b["name"] for b in secure.ask("/v1/buffers", context=shown).json["buffers"]]

    assert names(trainer) == ["models/a"]
    assert names(admin) == ["models/a", "other"]


def test_metrics_are_for_whom_an_allow_section_names(secure: Here, authority: Authority) -> None:
    for name, status in ("n1.train.example", 200), ("prometheus.example", 200), ("stranger.example", 403):
        shown = context(authority, authority.issue(name, f"DNS:{name}"))
        assert secure.ask("/metrics", context=shown).status == status, name
    # That one reads no buffer.
    shown = context(authority, authority.issue("p", "DNS:prometheus.example"))
    assert secure.ask("/v1/buffers", context=shown).json == {"buffers": []}
    assert secure.ask("/v1/buffers/models/a", context=shown).status == 403


def test_the_common_name_does_not_count_beside_alternative_names(secure: Here, authority: Authority) -> None:
    # With alternative names the common name does not count.
    both = context(authority, authority.issue("admin", "DNS:nobody.example"))
    assert secure.ask("/v1/buffers/other", context=both).status == 403


@pytest.mark.parametrize("which", ["none", "expired", "future", "foreign", "server"])
def test_a_certificate_that_is_not_accepted_is_told(
    secure: Here, authority: Authority, foreign: Authority, which: str
) -> None:
    shown = {
        "none": lambda: None,
        "expired": lambda: authority.expired("old", "DNS:n1.train.example"),
        "future": lambda: authority.issue("new", "DNS:n1.train.example", begins_h=24, ends_h=48),
        "foreign": lambda: foreign.issue("stranger", "DNS:n1.train.example"),
        "server": lambda: authority.issue("other", "DNS:n1.example"),
    }[which]()
    reply = secure.ask("/v1/buffers/models/a", context=context(authority, shown))
    assert (reply.status, "certificate" in reply.error) == (403, True)


def test_a_client_without_tls_gets_nothing(secure: Here) -> None:
    with secure.raw() as s:
        s.sendall(b"GET /v1/buffers HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"buffers" not in s.recv(65536)


def test_curl_and_openssl_get_the_file(secure: Here, authority: Authority, own: Certificate, tmp_path: Path) -> None:
    if not shutil.which("curl"):
        pytest.skip("no curl")
    shown = authority.issue("c", "DNS:c.train.example")
    url = f"https://localhost:{secure.port}/v1/buffers/models/a"
    secure.ask("/v1/manifests/models/a", {"Prefer": "wait=50"}, context=context(authority, shown))
    command = ["curl", "-sSf", "--cacert", authority.cert, "--cert", shown.cert, "--key", shown.key]
    out = tmp_path / "out"
    subprocess.run([*command, "-o", out, url], check=True, timeout=TIMEOUT)
    assert out.stat().st_size > 1000


def test_a_certificate_is_renewed_while_the_relay_runs(authority: Authority, tmp_path: Path) -> None:
    first = authority.issue("first", "IP:127.0.0.1")
    cert, key = tmp_path / "cert", tmp_path / "key"
    shutil.copy(first.cert, cert)
    shutil.copy(first.key, key)
    client = context(authority, authority.issue("any", "DNS:any"))

    def serial(h: Here) -> str:
        with client.wrap_socket(h.raw(), server_hostname="127.0.0.1") as s:
            return str(s.getpeercert()["serialNumber"])  # type: ignore[index]

    with Here(first=f"cert={cert}\nkey={key}\nca={authority.cert}\n") as h:
        before = serial(h)
        # One whose key does not fit is refused, and the old one stays.
        second = authority.issue("second", "IP:127.0.0.1")
        shutil.copy(second.cert, cert)
        while not any("this is not the key" in line for line in h.lines):
            time.sleep(0.1)
        assert serial(h) == before
        shutil.copy(second.key, key)
        while not any("read again" in line for line in h.lines):
            time.sleep(0.1)
        assert serial(h) != before


# ---- too many, and slow ----


def ended(s: socket.socket) -> bool:
    """Reads until the other side has ended the connection."""
    try:
        while s.recv(1 << 20):
            pass
    except ConnectionResetError:
        pass
    return True


def test_a_thousand_connections_are_served(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    write_model(tmp_path / "f", 100000)
    try:
        with Here(first="max-connections=1000\nmax-connections-per-address=1000\nmax-transfers=0\nfan-out=0\n") as h:
            h.load(tmp_path / "f", "m")
            before = h.memory()
            many = [h.raw() for _ in range(990)]
            for s in many:
                s.sendall(b"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nRange: bytes=0-7\r\n\r\n")
            assert all(b"206 Partial" in s.recv(65536) for s in many)
            assert h.memory() - before < MEMORY_MAX
            assert "gpushm_relay_connections 99" in h.ask("/metrics").body.decode()
            # Above the limit they are turned away, and those who are in are served.
            more = [h.raw() for _ in range(50)]
            many[0].sendall(b"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nRange: bytes=0-7\r\n\r\n")
            assert b"206 Partial" in many[0].recv(65536)
            for s in many + more:
                s.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_an_address_has_a_limit_of_its_own() -> None:
    with Here(first="max-connections-per-address=10\n") as h:
        many = [h.raw() for _ in range(10)]
        many[0].sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert b"200 OK" in many[0].recv(65536)
        with h.raw() as s:
            s.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert ended(s)
        for s in many:
            s.close()


def test_one_address_does_not_take_all_connections() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with Here() as h:
            many = [h.raw() for _ in range(1100)]
            other = socket.create_connection(("127.0.0.1", h.port), TIMEOUT, ("127.0.0.2", 0))
            other.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            other.settimeout(20)  # before the others have been idle for too long
            assert b"200 OK" in other.recv(65536)
            for s in [*many, other]:
                s.close()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"GET / HTTP/1.1\r\n", b"A: b\r\n"),
        (b"POST /v1/nixl/m HTTP/1.1\r\nHost: a\r\nContent-Length: 60000\r\n\r\n", b" "),
    ],
    ids=["headers", "body"],
)
def test_a_slow_request_ends_its_connection(begin: bytes, more: bytes) -> None:
    with Here() as h, h.raw() as s:
        s.settimeout(0.2)
        s.sendall(begin)
        until = time.monotonic() + TIMEOUT
        over = False
        while not over and time.monotonic() < until:
            try:
                s.sendall(more)
                over = s.recv(100) == b""
            except TimeoutError:
                continue
            except OSError:
                over = True
        assert over
        assert 'gpushm_relay_ended_total{limit="time"} 1' in h.ask("/metrics").body.decode()


def test_a_request_that_takes_more_than_a_second_is_served() -> None:
    """The relay looks at its connections once a second: one of them in the middle of a request."""
    with Here() as h, h.raw() as s:
        s.settimeout(TIMEOUT)
        s.sendall(b"GET / HTTP/1.1\r\n")
        time.sleep(2.2)
        s.sendall(b"Host: x\r\n\r\n")
        assert s.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.deep
def test_a_slow_reader_is_ended_and_a_steady_one_is_not(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 200 * MIB)
    with Here() as h:
        h.load(tmp_path / "f", "m")
        with h.raw() as slow, h.raw() as steady:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
            for s in slow, steady:
                s.sendall(b"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\n\r\n")
            until, n = time.monotonic() + TIMEOUT, 0
            while 'limit="min-rate"} 1' not in h.ask("/metrics").body.decode() and time.monotonic() < until:
                slow.recv(10)
                n += len(steady.recv(4 * MIB, socket.MSG_WAITALL))
                time.sleep(0.5)
            assert ended(slow)
            assert n > 0
            while n < 200 * MIB:
                part = steady.recv(1 << 20)
                assert part, "the steady reader was ended"
                n += len(part)
        assert 'gpushm_relay_ended_total{limit="min-rate"} 1' in h.ask("/metrics").body.decode()


@pytest.mark.deep
def test_a_reader_that_leaves_its_reply_to_the_kernel_is_ended(tmp_path: Path) -> None:
    """It would take a share of max-rate from the others."""
    write_model(tmp_path / "f", 2 * MIB)
    with Here(first="max-rate=20M\n") as h, socket.socket() as s:
        h.load(tmp_path / "f", "m")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", h.port))
        s.settimeout(TIMEOUT)
        s.sendall(f"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nRange: bytes=0-{MIB // 4 - 1}\r\n\r\n".encode())
        until = time.monotonic() + TIMEOUT
        while 'limit="min-rate"} 1' not in h.ask("/metrics").body.decode():
            assert time.monotonic() < until
            time.sleep(0.5)
        assert ended(s)


def test_those_who_wait_leave_connections_to_others(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 1000)
    # One more than are used here: that of load() may end late.
    with Here(first="max-connections-per-address=6\n") as h, ExitStack() as stack:
        h.load(tmp_path / "f", "m")
        waits = [stack.enter_context(h.raw()) for _ in range(5)]
        for s in waits:
            s.sendall(b"GET /v1/manifests/later HTTP/1.1\r\nHost: a\r\nPrefer: wait=600\r\n\r\n")
        for _ in range(2):
            (s, *_), _, _ = select.select(waits, [], [], TIMEOUT)
            waits.remove(s)
            assert s.recv(1000).startswith(b"HTTP/1.1 404")
            s.sendall(b"GET /v1/manifests/m HTTP/1.1\r\nHost: a\r\n\r\n")
            text = b""
            while b"HTTP/1.1 200" not in text:
                text += s.recv(1000)
        h.ctl("load", tmp_path / "f", "later")
        for s in waits:
            assert s.recv(100).startswith(b"HTTP/1.1 200")


def test_the_rate_of_all_is_limited(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 30 * MIB)
    with Here(first="max-rate=20M\n") as h:
        h.load(tmp_path / "f", "m")
        start = time.monotonic()
        assert len(h.ask("/v1/buffers/m").body) > 30 * MIB
        # 1.5 s, but for the first bytes.
        assert time.monotonic() - start > 0.7


@pytest.mark.parametrize("pause", [0, 0.06], ids=["together", "in_turn"])
def test_the_rate_of_connections_is_limited(tmp_path: Path, pause: float) -> None:
    """Also where the kernel still sends what a reply before has left to it."""
    write_model(tmp_path / "f", 40 * MIB)
    with Here(first="max-rate=20M\n") as h, ExitStack() as stack:
        h.load(tmp_path / "f", "m")
        start = time.monotonic()
        parts: list[socket.socket] = []
        begun = 0
        while parts or begun < 10:
            while begun < 10 and time.monotonic() - start >= pause * begun:
                s = stack.enter_context(h.raw())
                part = f"Range: bytes={4 * begun * MIB}-{4 * (begun + 1) * MIB - 1}"
                request = f"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{part}\r\n\r\n"
                s.sendall(request.encode())
                parts.append(s)
                begun += 1
            for s in select.select(parts, [], [], pause / 10 if begun < 10 else TIMEOUT)[0]:
                if not s.recv(1 << 20):
                    parts.remove(s)
        # 2 s, but for the first bytes of each.
        assert time.monotonic() - start > 1.2


def test_the_rate_of_small_replies_is_limited(tmp_path: Path) -> None:
    """Each of them fits into the kernel's buffer."""
    write_model(tmp_path / "f", 2 * MIB)
    request = f"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\nRange: bytes=0-{MIB // 4 - 1}\r\n\r\n".encode()
    with Here(first="max-rate=20M\n") as h, ExitStack() as stack:
        h.load(tmp_path / "f", "m")
        start = time.monotonic()
        left = {stack.enter_context(h.raw()): (16, 0) for _ in range(10)}  # replies, bytes of the first of them
        for s in left:
            s.sendall(request)
        while left:
            for s in select.select(left, [], [], TIMEOUT)[0]:
                replies, n = left[s]
                n += len(s.recv(1 << 20))
                if n > MIB // 4:
                    replies, n = replies - 1, 0
                    s.sendall(request)
                left[s] = replies, n
                if not replies:
                    del left[s]
        assert time.monotonic() - start > 1.2


# ---- memory ----


def half_read(h: Here, name: str) -> socket.socket:
    """A connection whose reply is under way and not read."""
    s = h.raw()
    s.sendall(f"GET /v1/buffers/{name} HTTP/1.1\r\nHost: a\r\n\r\n".encode())
    assert s.recv(1000)
    return s


def test_a_transfer_takes_a_bounded_piece_of_memory(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 128 * MIB)
    with Here() as h:
        h.load(tmp_path / "f", "m")
        before = h.memory()
        transfers = [half_read(h, "m") for _ in range(4)]
        assert h.memory() - before < MEMORY_MAX
        for s in transfers:
            s.close()


FILL = """
import gpushm, numpy as np, sys
a = gpushm.create("strided", (3, 700001), "int64", order="F", pool="gpu")
a.copy_from_host(np.arange(3 * 700001, dtype=np.int64).reshape(3, 700001))
a.publish("sealed")
"""


@pytest.fixture
def gpu() -> Iterator[Here]:
    """A relay and a daemon over our own driver."""
    fake = BUILD / "fakecuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("built without cuda.h")
    pools = "[pool gpu]\nkind=vmm\ndevice=0\nsize=512M\n"
    first = f"gpu-memory={GPU_MEMORY}\n"
    with Here(pools=pools, first=first, LD_LIBRARY_PATH=str(fake), FAKECUDA_STRICT="1") as h:
        yield h


def test_a_buffer_on_a_gpu_is_served(gpu: Here, tmp_path: Path) -> None:
    write_model(tmp_path / "f", 128 * MIB)
    gpu.load(tmp_path / "f", "m")
    gpu.ctl("save", "m", tmp_path / "saved")
    expected = (tmp_path / "saved").read_bytes()
    before = gpu.memory()
    transfers = [half_read(gpu, "m") for _ in range(4)]
    assert gpu.memory() - before < 4 * MEMORY_MAX
    for s in transfers:
        s.close()
    assert gpu.ask("/v1/buffers/m").body == expected
    for begin, end in (1, 2), (4 * MIB - 5, 13 * MIB + 7), (len(expected) - 9, len(expected)):
        part = gpu.ask("/v1/buffers/m", {"Range": f"bytes={begin}-{end - 1}"})
        assert part.body == expected[begin:end]


def test_many_connections_are_one_transfer_with_its_memory(gpu: Here, tmp_path: Path) -> None:
    write_model(tmp_path / "f", 64 * MIB)
    gpu.load(tmp_path / "f", "m")
    before = gpu.memory()
    many = []
    for _ in range(100):
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.connect(("127.0.0.1", gpu.port))
        s.settimeout(TIMEOUT)
        s.sendall(b"GET /v1/buffers/m HTTP/1.1\r\nHost: a\r\n\r\n")
        many.append(s)
    assert all(s.recv(10) for s in many)
    assert gpu.memory() - before < MEMORY_MAX + GPU_MEMORY
    for s in many:
        s.close()


def test_an_array_with_strides_on_a_gpu_is_served(gpu: Here) -> None:
    safetensors = pytest.importorskip("safetensors")
    np = pytest.importorskip("numpy")
    done = subprocess.run([sys.executable, "-c", FILL], env=gpu.env, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    gpu.await_name("strided")
    body = gpu.ask("/v1/buffers/strided").body
    ((_, tensor),) = safetensors.deserialize(body)
    assert np.array_equal(np.frombuffer(tensor["data"], "<i8"), np.arange(3 * 700001))
    part = gpu.ask("/v1/buffers/strided", {"Range": "bytes=4000001-12000003"})
    assert part.body == body[4000001:12000004]


def test_a_gpus_and_a_hosts_buffer_have_the_same_block_digests(tmp_path: Path) -> None:
    fake = BUILD / "fakecuda"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("built without cuda.h")
    pools = "[pool gpu]\nkind=vmm\ndevice=0\nsize=64M\n[pool host]\nkind=host\nsize=64M\n"
    write_model(tmp_path / "f", 9 * MIB)
    with Here(pools=pools, LD_LIBRARY_PATH=str(fake), FAKECUDA_STRICT="1") as h:
        for pool in "gpu", "host":
            h.ctl("load", f"--pool={pool}", tmp_path / "f", pool)
            h.await_name(pool)
        gpu, host = (h.ask(f"/v1/manifests/{pool}").json for pool in ("gpu", "host"))
        assert gpu["blocks"] == host["blocks"] and len(gpu["blocks"]) > 0


def test_a_gpu_gets_pinned_memory_that_another_one_has_used(tmp_path: Path) -> None:
    fake, go_on = BUILD / "fakecuda", tmp_path / "go on"
    if not (fake / "libcuda.so.1").exists():
        pytest.skip("built without cuda.h")
    pools = "".join(f"[pool gpu{i}]\nkind=vmm\ndevice={i}\nsize=64M\n" for i in range(2))
    env = {"FAKECUDA_DEVICES": "2", "FAKECUDA_HANG": "*:cuMemcpyDtoHAsync", "FAKECUDA_HANG_UNTIL": str(go_on)}
    write_model(tmp_path / "f", 8 * MIB)
    with Here(pools=pools, first="gpu-memory=16M\n", LD_LIBRARY_PATH=str(fake), **env) as h:
        for i in range(2):
            h.ctl("load", f"--pool=gpu{i}", tmp_path / "f", f"m{i}")
        while len(h.ask("/v1/buffers").json["buffers"]) < 2:
            time.sleep(0.05)
        # All of the memory is the first one's.
        many = [h.raw() for _ in range(8)]
        for s in many:
            s.sendall(b"GET /v1/buffers/m0 HTTP/1.1\r\nHost: a\r\nRange: bytes=4000000-4000009\r\n\r\n")
        time.sleep(1)
        go_on.touch()
        assert all(b"206 Partial" in s.recv(65536) for s in many)
        assert h.ask("/v1/buffers/m1", {"Range": "bytes=4000000-4000009"}).status == 206
        for s in many:
            s.close()


def count(h: Here, name: str) -> Callable[[], float]:
    """A metric."""
    return lambda: float(
        next(line for line in h.ask("/metrics").body.decode().splitlines() if line.startswith(name)).split()[-1]
    )


def test_metrics_count_what_happened(tmp_path: Path) -> None:
    write_model(tmp_path / "f", 5 * MIB)
    with Here() as h:
        h.load(tmp_path / "f", "m")
        missing, good = 'gpushm_relay_replies_total{status="404"}', 'gpushm_relay_replies_total{status="206"}'
        h.ask("/v1/buffers/x")
        h.ask("/v1/buffers/m", {"Range": "bytes=0-4194303"})
        assert (count(h, missing)(), count(h, good)()) == (1, 1)
        assert count(h, "gpushm_relay_buffers ")() == 1
        until = time.monotonic() + TIMEOUT
        while count(h, "gpushm_relay_sent_bytes_total")() < 4 * MIB and time.monotonic() < until:
            time.sleep(0.05)
        assert count(h, "gpushm_relay_sent_bytes_total")() >= 4 * MIB
        assert h.ask("/metrics", {"Accept": "application/openmetrics-text"}).body.endswith(b"# EOF\n")
