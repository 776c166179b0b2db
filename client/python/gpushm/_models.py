# SPDX-License-Identifier: MIT
"""Files of tensors that are loaded once: what gpushm.safetensors and gpushm.transformers share."""

from __future__ import annotations

import errno
import os
import pwd
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import _core

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ._typing import Access, Buffer


def load_once(
    sources: str | Sequence[str], key: str, name: str, access: Access, gpu: int | None, **options: Any
) -> Buffer:
    """The buffer of these files, loaded if no process has it. key: of the files; options: those of gpushm.load().

    BadContents: the files have changed since the key was made.
    """
    while True:
        found = _existing(key, name, access, gpu)
        if found is not None:
            return found
        # Opened again on the common connection: load() makes a connection for each buffer.
        with _core.load(sources, name, device=gpu, if_missing=True, **options) as loaded:
            if loaded.attr("gpushm.files") != key.encode():
                raise _core.BadContents(errno.EBADMSG, f"{sources} changed after it was opened: open it again")
            opened = reopened(name, loaded.id, access, gpu)
        if opened is not None:
            return opened


def _existing(key: str, name: str, access: Access, gpu: int | None) -> Buffer | None:
    """The buffer of that name, if it has the files of that key and a trusted owner. load() would find it, too, and read
    the files' headers again.
    """
    try:
        info = _core.stat(name)
    except _core.NotFound:
        return None
    if info.state != "sealed" or not is_trusted(info.uid) or info.attrs.get("gpushm.files") != key.encode():
        return None
    return reopened(name, info.id, access, gpu)


def reopened(name: str, id: int, access: Access, gpu: int | None) -> Buffer | None:
    """The buffer of that name; None: the name is free by now, or another buffer's."""
    try:
        found = _core.open_many(name, access, device=gpu)
    except (_core.NotFound, _core.NotPublished):
        return None
    if found.id == id:
        return found
    found.close()
    return None


def published(name: str) -> int | None:
    """Returns the id of the published buffer of that name, or None."""
    try:
        found = _core.stat(name)
    except _core.NotFound:
        return None
    return None if found.state == "filling" else found.id


@contextmanager
def turn(name: str, end: float | None) -> Iterator[None]:
    """One process of the machine at a time is in this block of that name. If it dies there, it is another one's turn.
    end: the time of the monotonic clock until which this waits, None for ever.
    """
    pools = [pool for pool in _core.pools() if pool.kind == "host" and not pool.failed]
    try:
        # Nobody publishes it, so that it ends with the process.
        lock = _core.open_or_create(
            f"{name}.loading",
            1,
            pool=pools[0].name if pools else None,
            timeout=None if end is None else max(0.0, end - time.monotonic()),
        )
    except _core.Timeout as error:
        raise _core.Timeout(errno.ETIMEDOUT, f'another process still loads "{name}"') from error
    try:
        yield
    finally:
        lock.discard()


def access_to(kind: str) -> Access:
    """Programs write to tensors on the CPU: they get pages of their own, which the driver's memory does not have."""
    return "r" if kind in _core._BY_DRIVER else "c"


def pool_of(gpu: int | None, host: str = "host") -> str:
    """The pool of a GPU that has most free memory; None: the host's."""
    if gpu is None:
        return host
    found = [p for p in _core.pools() if p.device == gpu and p.kind in _core._ON_GPU and p.allowed]
    if not found:
        raise _core.NotFound(
            errno.ENOENT, f"no pool of GPU {gpu} that this user may create in: gpushmctl pools shows the pools"
        )
    best = max(found, key=lambda p: (not p.failed, p.kind in _core._READ_ONLY, p.nbytes - p.used))
    return best.name


def is_trusted(uid: int) -> bool:
    """Whether this process uses tensors of that user: its own, root, and those in $GPUSHM_TRUST, as gpushm_load(). A
    number that stands for every user whom the namespace does not map identifies none of them.
    """
    if uid == _unmapped_uid():
        return False
    named = os.environ.get("GPUSHM_TRUST", "").replace(",", " ").split()
    return uid in (os.geteuid(), 0) or str(uid) in named or _name_of(uid) in named


@cache
def _unmapped_uid() -> int | None:
    """As proto/base/userns.h has it; None: the user namespace maps all users."""
    try:
        rows = Path("/proc/self/uid_map").read_text().split()
    except FileNotFoundError:  # a kernel without user namespaces
        return None
    if sum(map(int, rows[2::3])) == 2**32 - 1:
        return None
    try:
        return int(Path("/proc/sys/kernel/overflowuid").read_text())
    except (OSError, ValueError):
        return 65534


def _name_of(uid: int) -> str | None:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return None
