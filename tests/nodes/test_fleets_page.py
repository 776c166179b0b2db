# SPDX-License-Identifier: MIT
"""The commands of gpushm-fleets(7): the certificates that they make are what the page says of them."""

from __future__ import annotations

import fnmatch
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from certificates import Authority, Certificate
from node import BUILD, TIMEOUT, Node

PAGE = Path(__file__).resolve().parents[2] / "man/gpushm-fleets.7"
RELAYS = PAGE.parents[1] / "client/relay/README.md"


def literals(text: str) -> list[str]:
    """What a reader copies."""
    blocks = re.findall(r"^\.Bd -literal[^\n]*\n(.*?)^\.Ed$", text, re.MULTILINE | re.DOTALL)
    return [b.replace(r"\e", "\\") for b in blocks]


def section(name: str) -> list[str]:
    return literals(PAGE.read_text().partition(f".Ss {name}\n")[2].partition("\n.S")[0])


def commands(name: str) -> str:
    """The shell of a section of the page, as a reader sees it, up to what needs root."""
    return "".join(b for b in section(name) if "install -m" not in b and not b.startswith("source.gpu"))


def issue(folder: Path, machines: dict[str, str]) -> None:
    (folder / "machines").write_text("".join(f"{name} {address}\n" for name, address in machines.items()))
    done = subprocess.run(
        ["sh", "-eu", "-c", commands("With openssl")], cwd=folder, capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr


def verdict(folder: Path, purpose: str, name: str) -> str:
    done = subprocess.run(
        ["openssl", "verify", "-CAfile", "ca.pem", "-purpose", purpose, f"{name}.pem"],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    return done.stdout + done.stderr


def test_the_pages_commands_make_the_certificates_it_describes(tmp_path: Path) -> None:
    issue(tmp_path, {"node01.gpu.example.com": "10.0.0.1", "node02.gpu.example.com": "10.0.0.2"})
    for name in ("node01.gpu.example.com", "node02.gpu.example.com"):
        assert "OK" in verdict(tmp_path, "sslserver", name)
        assert "OK" in verdict(tmp_path, "sslclient", name)
    assert "OK" in verdict(tmp_path, "sslclient", "reader")
    assert "unsuitable certificate purpose" in verdict(tmp_path, "sslserver", "reader")
    text = subprocess.run(
        ["openssl", "x509", "-noout", "-text", "-in", tmp_path / "node02.gpu.example.com.pem"],
        capture_output=True,
        text=True,
    ).stdout
    assert "DNS:node02.gpu.example.com, IP Address:10.0.0.2" in text and "CA:TRUE" not in text
    keys = [*tmp_path.glob("*.key")]
    assert len(keys) == 4 and all(key.stat().st_mode & 0o077 == 0 for key in keys)


def test_the_pages_machines_get_files_that_install_finds_and_names_that_are_allowed(tmp_path: Path) -> None:
    blocks = section("With openssl")
    machines = dict(line.split() for line in next(b for b in blocks if b.startswith("source.gpu")).splitlines())
    issue(tmp_path, machines)
    lines = "".join(blocks).replace("\\\n", "").splitlines()
    installed = [line.split()[-2] for line in lines if line.startswith("install -m")]
    assert len(installed) == 3 and all((tmp_path / name).is_file() for name in installed), installed
    configs = [b for b in literals(PAGE.read_text()) if b.startswith("[relay]")]
    for config in configs:
        pattern = re.search(r"^\[allow (.*)\]$", config, re.MULTILINE)
        assert pattern is not None and all(fnmatch.fnmatchcase(name, pattern[1]) for name in machines)
    named = re.findall(r"^(?:listen|source)=([^:/]*[^:/0-9.][^:/]*|[0-9.]+)[:/]", "".join(configs), re.MULTILINE)
    assert set(named) <= {*machines, *machines.values()}, named


@pytest.fixture
def made(tmp_path: Path, machine: Callable[..., Node]) -> tuple[Path, list[Node]]:
    """Two machines with the page's certificates."""
    if not (BUILD / "gpushm-relay").exists():
        pytest.skip("no gpushm-relay")
    nodes = [machine() for _ in range(2)]
    folder = tmp_path / "ca"
    folder.mkdir()
    issue(folder, {f"node0{i}.gpu.example.com": node.address for i, node in enumerate(nodes)})
    for i, node in enumerate(nodes):
        give(node, folder, f"node0{i}.gpu.example.com")
    return folder, nodes


class Made(Authority):
    """The authority that the commands have made."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cert = folder / "ca.pem"


def give(node: Node, folder: Path, name: str) -> None:
    node.authority = Made(folder)
    node.certificate = Certificate(folder / f"{name}.pem", folder / f"{name}.key")


def curl(node: Node, folder: Path, where: str) -> str:
    """The names that a relay offers, as the page asks it."""
    line = re.search(r"^curl (--cacert (?:.|\\\n)*?)https://", PAGE.read_text().replace(r"\e", "\\"), re.MULTILINE)
    assert line is not None
    words = line[1].replace("\\\n", " ").split()
    assert node.certificate is not None
    words = [{"relay.pem": str(node.certificate.cert), "relay.key": str(node.certificate.key)}.get(w, w) for w in words]
    found = node.run("curl", "-sS", *[str(folder / w) if w == "ca.pem" else w for w in words], f"https://{where}")
    return " ".join(b["name"] for b in json.loads(found.stdout)["buffers"])


ALLOW = "[allow *.gpu.example.com]\noffer=llama*\n"


def test_relays_take_the_pages_certificates(
    made: tuple[Path, list[Node]], model: Callable[..., Path], authority: Authority
) -> None:
    folder, (source, other) = made
    source.ctl("load", model(1 << 20), "llama")
    source.ctl("load", model(1 << 10, "secret"), "secret")
    relay = source.relay(ALLOW)
    host = f"{source.address}:{relay.port}"
    assert sorted(curl(other, folder, f"{host}/v1/buffers").split()) == ["llama"]
    other.ctl("pull", f"{host}/llama")
    assert other.attributes("llama")["state"] == "sealed"
    # What the page says of names, and of readers.
    assert other.ctl("pull", f"{host}/secret", check=False).returncode != 0
    give(other, folder, "reader")
    other.ctl("pull", f"{host}/llama", "read")
    # Another authority's.
    other.certificate = authority.issue("node09.gpu.example.com", "DNS:node09.gpu.example.com")
    assert other.ctl("pull", f"{host}/llama", "foreign", check=False).returncode != 0


def test_the_pages_first_pull_finds_its_certificates(
    made: tuple[Path, list[Node]], model: Callable[..., Path]
) -> None:
    folder, (source, other) = made
    source.ctl("load", model(1 << 20), "llama")
    relay = source.relay(ALLOW)
    other.authority = other.certificate = None
    text = next(b for b in literals(PAGE.read_text()) if "gpushmctl pull source.gpu.example.com/llama" in b)
    text = text.replace("/etc/gpushm", str(folder)).replace("source.gpu.example.com", f"{source.address}:{relay.port}")
    env = other.env | {"PATH": f"{BUILD}:{other.env['PATH']}"}
    other.run("sh", "-eu", "-c", f"cd {folder}\n{text}", env=env, timeout=TIMEOUT)
    assert other.attributes("llama")["state"] == "sealed"


def test_a_readers_certificate_makes_no_relay(made: tuple[Path, list[Node]], model: Callable[..., Path]) -> None:
    folder, (source, other) = made
    source.ctl("load", model(1 << 20), "llama")
    # As a thief would: the address is right.
    subprocess.run(
        ["sh", "-eu", "-c", commands("With openssl").replace("DNS:reader.gpu.example.com", f"IP:{source.address}")],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    give(other, folder, "node01.gpu.example.com")
    give(source, folder, "reader")
    relay = source.relay(ALLOW)
    failed = other.ctl("pull", f"{source.address}:{relay.port}/llama", check=False)
    assert failed.returncode != 0 and "certificate" in failed.stderr.lower(), failed.stderr


def test_the_tour_of_relays_works(machine: Callable[..., Node], model: Callable[..., Path]) -> None:
    if not (BUILD / "gpushm-relay").exists():
        pytest.skip("no gpushm-relay")
    tour = re.search(r"^```sh\n(.*?)^```$", RELAYS.read_text(), re.MULTILINE | re.DOTALL)
    assert tour is not None and "gpushm-relay &" in tour[1]
    node = machine()
    folder = node.daemon.folder
    # A reader takes longer than the relay to start.
    ready = f"until curl -so {folder}/list http://127.0.0.1:19401/v1/buffers; do kill -0 $!; done"
    text = tour[1].replace("/tmp/", f"{folder}/").replace("sleep 1\n", f"{ready}\n")
    text = text.replace("model.safetensors", str(model(1 << 20)))
    env = node.env | {"PATH": f"{BUILD}:{node.env['PATH']}"}
    text = "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n" + text
    done = node.run("bash", "-eu", "-c", text, check=False, env=env, timeout=TIMEOUT)
    assert done.returncode == 0, done.stderr
    digests = [node.attributes(name)["attrs"]["gpushm.content"] for name in ("llm", "copy")]
    assert digests[0] == digests[1]
    assert (folder / "llm.safetensors").stat().st_size > 1 << 20


def test_the_configurations_of_the_page_are_valid(tmp_path: Path, authority: Authority) -> None:
    program = BUILD / "gpushm-relay"
    if not program.exists():
        pytest.skip("no gpushm-relay")
    found = [b for b in literals(PAGE.read_text()) if b.startswith("[relay]")]
    assert len(found) == 2
    made = authority.issue("page", "DNS:page")
    for block in found:
        block = block.replace("/etc/gpushm/relay.pem", str(made.cert)).replace("/etc/gpushm/relay.key", str(made.key))
        (tmp_path / "conf").write_text(block.replace("/etc/gpushm/ca.pem", str(authority.cert)))
        done = subprocess.run(
            [program, "--check-config", "--config", tmp_path / "conf"], capture_output=True, text=True, timeout=TIMEOUT
        )
        assert done.returncode == 0, done.stderr


def test_the_patterns_of_the_page_refuse_only_the_stolen_machine(
    tmp_path: Path, authority: Authority
) -> None:
    program = BUILD / "gpushm-relay"
    if not program.exists():
        pytest.skip("no gpushm-relay")
    how = PAGE.read_text().partition(".Ss How to refuse it\n")[2].partition("\n.S")[0]
    patterns = re.findall(r"\.Ql \[allow ([^ \n]*)\]", how)
    names = [f"node{i:02}.gpu.example.com" for i in range(1, 41)]
    refused = [n for n in names if not any(fnmatch.fnmatchcase(n, p) for p in patterns)]
    assert refused == ["node17.gpu.example.com"]
    made = authority.issue("stolen", "DNS:stolen")
    text = f"[relay]\ncert={made.cert}\nkey={made.key}\nca={authority.cert}\n"
    (tmp_path / "conf").write_text(text + "".join(f"[allow {p}]\noffer=llama*\n" for p in patterns))
    done = subprocess.run(
        [program, "--check-config", "--config", tmp_path / "conf"], capture_output=True, text=True, timeout=TIMEOUT
    )
    assert done.returncode == 0, done.stderr


def test_a_shared_certificate_makes_a_mirror_of_each_name_it_covers(
    machine: Callable[..., Node], authority: Authority, model: Callable[..., Path]
) -> None:
    """As the pods of Kubernetes do, where a certificate is for all names of a service."""
    source, other = machine(), machine()
    shared = authority.issue("shared", "DNS:*.relays.example", f"IP:{source.address}")
    for node in (source, other):
        node.authority, node.certificate = authority, shared
    source.ctl("load", model(1 << 20), "llama")
    relay = source.relay("[allow *.relays.example]\noffer=*\n")

    def ask(*headers: str) -> str:
        words = ["curl", "-sS", "--cacert", authority.cert, "--cert", shared.cert, "--key", shared.key]
        words += [word for header in headers for word in ("--header", header)]
        return str(other.run(*words, f"{relay.url}/v1/manifests/llama").stdout)

    etag = json.loads(ask())["etag"]
    for host in ("a.relays.example", "a.b.relays.example", "relays.example", ".relays.example", "arelays.example"):
        assert ask(f"If-None-Match: {etag}", f"Gpushm-Relay: https://{host}:1/v1/buffers/llama") == ""
    assert json.loads(ask())["mirrors"] == ["https://a.relays.example:1/v1/buffers/llama"]
