# SPDX-License-Identifier: MIT
"""A certificate authority of openssl(1)."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

_CONFIG = """
[ca]
default_ca = here
[here]
database = index.txt
new_certs_dir = .
rand_serial = yes
default_md = sha256
policy = any
unique_subject = no
[any]
commonName = supplied
[req]
distinguished_name = req
[authority]
basicConstraints = critical, CA:true
keyUsage = critical, keyCertSign
"""

_NEW_KEY = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-config", "conf"]


@dataclass(frozen=True)
class Certificate:
    """PEM files."""

    cert: Path
    key: Path


class Authority:
    """Signs certificates in a folder of its own."""

    def __init__(self, folder: Path, name: str = "tests") -> None:
        self.folder = folder
        folder.mkdir(parents=True)
        (folder / "conf").write_text(_CONFIG)
        (folder / "index.txt").write_text("")
        self.cert = folder / "ca.pem"
        self._openssl(
            *[
                "req",
                "-x509",
                "-nodes",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-days",
                "2",
                "-config",
                "conf",
            ],
            *["-extensions", "authority", "-keyout", "ca.key", "-out", "ca.pem", "-subj"],
            f"/CN={name}",
        )

    def _openssl(self, *arguments: str) -> None:
        subprocess.run(["openssl", *arguments], cwd=self.folder, check=True, capture_output=True)

    def issue(self, name: str, *names: str, begins_h: float = -1, ends_h: float = 24) -> Certificate:
        """A certificate for a common name and alternative names ("DNS:n1", "IP:10.0.0.1"); hours from now."""
        key = self.folder / f"{name}.key"
        (self.folder / f"{name}.ext").write_text(f"subjectAltName = {','.join(names)}\n" if names else "")
        self._openssl(
            *[
                "req",
                "-new",
                "-nodes",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:P-256",
                "-config",
                "conf",
                "-subj",
            ],
            *[f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.csr"],
        )
        now = datetime.now(UTC)
        begin, end = (f"{now + timedelta(hours=h):%Y%m%d%H%M%SZ}" for h in (begins_h, ends_h))
        self._openssl(
            *["ca", "-batch", "-notext", "-config", "conf", "-cert", "ca.pem", "-keyfile", "ca.key", "-startdate"],
            *[begin, "-enddate", end, "-extfile", f"{name}.ext", "-in", f"{name}.csr", "-out", f"{name}.pem"],
        )
        return Certificate(self.folder / f"{name}.pem", key)

    def expired(self, name: str, *names: str) -> Certificate:
        """A certificate whose time is over."""
        return self.issue(name, *names, begins_h=-48, ends_h=-24)
