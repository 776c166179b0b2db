# SPDX-License-Identifier: MIT
"""Transport: how load(), pull() and pull_wait() get the bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ._typing import IO, Path, Via


class Transport(NamedTuple):
    """How load(), pull() and pull_wait() get the bytes: their transport=.

    token_file, ca, cert, key: files for servers: a bearer token, the certificates that sign the server's, and what this
    process shows; None is what the environment says: GPUSHM_TOKEN_FILE, GPUSHM_TLS_CA, GPUSHM_TLS_CERT,
    GPUSHM_TLS_KEY, and what gpushm_load(3) names besides. patience: seconds in which nothing may come before it is an
    error; 0 is 60. threads: that read; 0 is 12, or one for each processor.

    io, of load(): 'cached' reads files through the page cache, 'direct' past it; 'auto' asks for each file what is
    there. drop_cache, of load(): drop the files from the page cache afterwards. via, of pull(): 'nixl' moves the bytes
    by NVIDIA's NIXL, which uses RDMA where there is some.
    """

    token_file: Path | None = None
    ca: Path | None = None
    cert: Path | None = None
    key: Path | None = None
    patience: int = 0
    threads: int = 0
    io: IO = "auto"
    drop_cache: bool = False
    via: Via = "https"


Transport.__module__ = "gpushm"
