#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Writes the bill of materials of a release: SPDX 2.3, as JSON, on standard output.

    systemd/sbom.py VERSION SECONDS FILE...

FILE is a source archive, a wheel, a package of Debian's or RPM's, or an OCI archive. What is in it is read from the
file itself: the libraries that its programs ask for (ELF's NEEDED), those that they open later if they are there (the
note FDO of systemd's ELF_DLOPEN_METADATA), what a wheel has packed in, the fields of a Debian package, and the packages
of an image. The version of a library that a Debian package needs is the one that it was linked with here; a wheel's is
left open, as it takes that of its machine.

SECONDS since 1970 are the time of the document, so that the same files give the same bytes.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import re
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Record = dict[str, Any]
HOME = "https://gpushm.example/"


def run(*command: str) -> str:
    """What a command prints; nothing if it fails."""
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def identifier(*words: str) -> str:
    """SPDX allows letters, digits, dots and hyphens."""
    return "SPDXRef-" + "-".join(re.sub(r"[^A-Za-z0-9.]+", "-", w).strip("-") for w in words)


class Document:
    """Packages and what they have to do with each other, each of them once."""

    def __init__(self) -> None:
        self.packages: dict[str, Record] = {}
        self.relations: set[tuple[str, str, str]] = set()

    def relate(self, one: str, how: str, other: str) -> None:
        """Records that one is related to the other."""
        self.relations.add((one, how, other))

    def add(self, key: str, name: str, version: str, **more: Any) -> str:
        """A package, unless it is there already."""
        fixed = {"downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
                 "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION", "supplier": "NOASSERTION"}
        record = {"SPDXID": key, "name": name, **({"versionInfo": version} if version else {}), **fixed, **more}
        self.packages.setdefault(key, record)
        return key

    def debian(self, name: str, version: str) -> str:
        """A package of Debian's."""
        purl = f"pkg:deb/debian/{name}" + (f"@{version}" if version else "")
        reference = {"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl}
        return self.add(identifier("deb", name, version), name, version, supplier="Organization: Debian",
                        externalRefs=[reference])

    def library(self, soname: str, here: bool) -> str | None:
        """The package that a soname comes from, if it is that of here; None if it is one of ours."""
        if soname.startswith("libgpushm"):
            return None
        found = owner(soname) if here else None
        return self.debian(*found) if found else self.add(identifier("library", soname), soname, "")

    def json(self, version: str, created: str) -> str:
        """All of it, in an order of its own."""
        relations = [{"spdxElementId": a, "relationshipType": how, "relatedSpdxElement": b}
                     for a, how, b in sorted(self.relations)]
        packages = [self.packages[k] for k in sorted(self.packages)]
        digest = hashlib.sha256(json.dumps([packages, relations]).encode()).hexdigest()
        return json.dumps({
            "spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT",
            "name": f"gpushm-{version}", "documentNamespace": f"{HOME}spdx/gpushm-{version}-{digest}",
            "creationInfo": {"created": created, "creators": [f"Tool: gpushm-sbom-{version}"]},
            "packages": packages, "relationships": relations,
        }, indent=1) + "\n"


@cache
def owner(soname: str) -> tuple[str, str] | None:
    """Name and version of the Debian package that has a library."""
    for folder in (f"*/{sysconfig.get_config_var('MULTIARCH')}", "/lib64"):
        for line in run("dpkg-query", "-S", f"{folder}/{soname}").splitlines():
            name = line.split(":")[0]
            return name, run("dpkg-query", "-W", "-f", "${Version}\n", name).splitlines()[0]
    return None


# ---- what is in a file ----

def opened_later(program: bytes) -> list[str]:
    """Sonames in the notes of an ELF file whose owner is FDO and whose type is 0x407c0c0a."""
    found: list[str] = []
    for at in re.finditer(rb"\x04\0\0\0(....)\x0a\x0c\x7c\x40FDO\0", program, re.DOTALL):
        size = int.from_bytes(at[1], sys.byteorder)
        text = program[at.end():at.end() + size].rstrip(b"\0")
        found += [name for entry in json.loads(text) for name in entry["soname"][:1]]
    return found


def links(document: Document, key: str, files: Iterator[bytes], packed: set[str] | None = None) -> None:
    """The libraries that ELF files need, and those that they open if they are there; a wheel has packed some in."""
    for content in files:
        if content[:4] != b"\x7fELF":
            continue
        with tempfile.NamedTemporaryFile() as copy:
            copy.write(content)
            copy.flush()
            needed = re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "-dW", copy.name))
        for soname in set(needed) - (packed or set()):
            library = document.library(soname, packed is None)
            if library:
                document.relate(key, "DYNAMIC_LINK", library)
        for soname in opened_later(content):
            library = document.library(soname, packed is None)
            if library:
                document.relate(library, "OPTIONAL_DEPENDENCY_OF", key)


def tar_files(data: bytes) -> Iterator[tuple[str, bytes]]:
    """The regular files of a tar archive."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content:
                yield member.name.removeprefix("./"), content.read()


def stanzas(text: str) -> Iterator[dict[str, str]]:
    """Paragraphs of a file like Debian's control."""
    for paragraph in text.strip().split("\n\n"):
        yield dict(re.findall(r"^([A-Za-z-]+): *(.*)$", paragraph, re.MULTILINE))


def wheel(document: Document, key: str, path: Path) -> None:
    """A wheel: what is packed in is in gpushm.libs, or else is a part of its programs."""
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        bundled = {Path(n).name for n in names if n.startswith("gpushm.libs/") and ".so" in n}
        packed = next((archive.read(n).decode() for n in names if n.endswith("/licenses/PACKED")), "")
        links(document, key, map(archive.read, names), bundled)
    for line in packed.splitlines():
        name, version = line.split()
        stem = "lib" + name.removesuffix("-dev").removeprefix("lib")
        how = "CONTAINS" if any(b.startswith(f"{stem}-") for b in bundled) else "STATIC_LINK"
        document.relate(key, how, document.debian(name, version))


def deb(document: Document, key: str, path: Path) -> None:
    """A Debian package: dpkg-shlibdeps has put what it needs into its fields."""
    control = next(stanzas(run("dpkg-deb", "-f", str(path))))
    data = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(path)], capture_output=True, check=True).stdout
    links(document, key, (content for _, content in tar_files(data)))
    for field in ("Recommends", "Suggests"):
        for name in re.findall(r"(?:^|, )([a-z0-9.+-]+)", control.get(field, "")):
            if "gpushm" not in name:
                version = run("dpkg-query", "-W", "-f", "${Version}\n", name).split("\n")[0]
                document.relate(document.debian(name, version), "OPTIONAL_DEPENDENCY_OF", key)


def source_rpm(document: Document, key: str, path: Path) -> None:
    """A source package of RPM's: what a build of it asks for."""
    for line in run("rpm", "-qp", "--requires", str(path)).splitlines():
        if not line.startswith("rpmlib("):
            name = line.split()[0]
            document.relate(document.add(identifier("rpm", name), name, ""), "BUILD_DEPENDENCY_OF", key)


def image(document: Document, key: str, path: Path) -> None:
    """An OCI archive: what dpkg knows in its last layer that has a list of packages."""
    blobs = dict(tar_files(path.read_bytes()))
    index = json.loads(blobs["index.json"])
    manifest = json.loads(blobs["blobs/" + index["manifests"][0]["digest"].replace(":", "/")])
    status = b""
    for layer in manifest["layers"]:
        data = blobs["blobs/" + layer["digest"].replace(":", "/")]
        data = gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
        status = next((c for name, c in tar_files(data) if name == "var/lib/dpkg/status"), status)
    for package in stanzas(status.decode()):
        document.relate(key, "CONTAINS", document.debian(package["Package"], package["Version"]))


READERS = {".whl": wheel, ".deb": deb, ".src.rpm": source_rpm, "image.tar": image}


def artifact(document: Document, source: str, version: str, path: Path) -> None:
    """One file of the release."""
    checksum = {"algorithm": "SHA256", "checksumValue": hashlib.sha256(path.read_bytes()).hexdigest()}
    key = document.add(identifier("file", path.name), path.name, version, packageFileName=path.name,
                       checksums=[checksum], supplier="Organization: gpushm authors")
    document.relate(key, "GENERATED_FROM", source)
    for suffix, reader in READERS.items():
        if path.name.endswith(suffix):
            reader(document, key, path)


def main() -> None:
    """Reads the files, and prints the document."""
    version, seconds, *names = sys.argv[1:]
    document = Document()
    source = document.add("SPDXRef-gpushm", "gpushm", version, licenseDeclared="MIT", homepage=HOME,
                          supplier="Organization: gpushm authors", primaryPackagePurpose="SOURCE")
    document.relate("SPDXRef-DOCUMENT", "DESCRIBES", source)
    for name in sorted(names):
        artifact(document, source, version, Path(name))
    print(document.json(version, time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(seconds)))), end="")


main()
