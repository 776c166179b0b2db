# SPDX-License-Identifier: MIT
"""load(), pull(), pull_wait(), save() and verify(): models in files and of other machines, by libgpushm-load.

The first four are also methods of Connection. What a file may be, and all work, is the library's.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, cast

from . import _calls, _core

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ._typing import IO, Array, Attrs, Buffer, Device, Path, Progress, Sources, Via

Call = TypeVar("Call", bound=Callable[..., Any])


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


def _names_what_moved(call: Call) -> Call:
    @wraps(call)
    def checked(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs.keys() & set(Transport._fields):
            raise TypeError(f"{name}= is gpushm.Transport({name}=...) now, which transport= takes")
        return call(*args, **kwargs)

    return cast("Call", checked)


@_names_what_moved
def load(
    self: _core.Connection, sources: Sources, name: str, *, pool: str | None = None, mode: int = 0o600,
    transient: bool = False, attrs: Attrs | None = None, wait: float | None = 0, gid: int | None = None,
    device: Device | None = None, only: str | Sequence[str] | None = None, strip: str | None = None,
    sha256: Path | None = None, verify: bool = False, if_missing: bool = False, replace: bool = False,
    timeout: float | None = None, progress: Progress | None = None, transport: Transport | None = None,
    twin: str | None = None, keep: float | None = None,
) -> Buffer:
    """Loads safetensors files into one sealed buffer of that name, and opens it: a Buffer with an Array for each
    tensor.

    sources: a path or several: files, an index (*.index.json) with its shards, a folder of either, or the URL
    ('https://...') of a file, of an index, or, with '/' at its end, of a folder as the Hugging Face Hub has them. pool,
    mode, transient, attrs, wait, gid, device: as create(). only: patterns of the tensors' names, as fnmatch has them;
    None is all. strip: a prefix that is taken off the names. sha256: a file of checksums as sha256sum writes it, to
    compare with. verify: read back what was copied, and compare.

    if_missing: open the buffer of that name if it has the contents of these files and belongs to this user, to root or
    to an owner in $GPUSHM_TRUST; wait `timeout` seconds (None: for ever) for another process that loads it; load it if
    nobody has. So of many processes one loads. replace: take the name over from another buffer in the moment in which
    this one is whole.

    twin: a host or pinned pool, in which the buffer gets a twin. keep: its memory may go when it is needed, so many
    seconds after its last use (math.inf: never), as gpushm-memory(7) says; it comes back from the twin, or is loaded
    again. If one of the two fails, the buffer stays.

    progress: called some ten times a second with the bytes that are done and those of all tensors, which are 0 before
    the header of a pipe has come. transport: a Transport, which says how the bytes come; None is its defaults.

    Other threads run meanwhile. After an error, Ctrl-C or an exception of progress nothing is left behind. Errors:
    those of create(), BadContents (a file breaks the format or changed meanwhile, or a checksum differs), Exists,
    Timeout, FileNotFoundError, NotSupported (libgpushm-load is not installed).
    """
    t = _checked(transport)
    return self._load(
        False, _paths(sources), name, (pool, mode, transient, attrs, wait, gid, device),
        (if_missing, replace, verify, t.io == "cached", t.io == "direct", t.drop_cache, False, keep is not None),
        timeout, _callable(progress), t.threads, _remote(t),
        [*map(str.encode, [only] if isinstance(only, str) else only or ())], strip, _path(sha256),
        None if twin is None else twin.encode(), _keep_ms(keep),
    )


@_names_what_moved
def pull(
    self: _core.Connection, source: str, name: str | None = None, *, pool: str | None = None, mode: int = 0o600,
    transient: bool = False, attrs: Attrs | None = None, wait: float | None = 0, gid: int | None = None,
    device: Device | None = None, verify: bool = False, if_missing: bool = False, replace: bool = False,
    timeout: float | None = None, progress: Progress | None = None, transport: Transport | None = None,
) -> Buffer:
    """Loads a buffer that another machine has, from its gpushm-relay(8), and opens it: a Buffer with the same arrays,
    digest and attributes. Each block is compared with its digest while it comes.

    source: 'HOST/NAME', 'HOST:PORT/NAME', or a URL 'https://HOST:PORT/v1/buffers/NAME'. name: of the new buffer; None
    is the same as there. pool, mode, transient, attrs, wait, gid, device: as create(). verify, if_missing, replace,
    timeout, progress, transport: as load().

    Arrays arrive in C order: strides are not kept. After an error, Ctrl-C or an exception of progress nothing is left
    behind. Errors: those of load(), NotSupported (the relay can't offer the buffer, or NIXL is missing), AccessDenied,
    NotFound, ConnectionError.
    """
    t = _checked(transport)
    return self._load(
        True, _paths(source), name, (pool, mode, transient, attrs, wait, gid, device),
        (if_missing, replace, verify, False, False, False, t.via == "nixl"), timeout, _callable(progress), t.threads,
        _remote(t), [], None, None, None, 0,
    )


@_names_what_moved
def pull_wait(
    source: str, content: str | bytes | None = None, *, timeout: float | None = None, transport: Transport | None = None
) -> None:
    """Waits until a relay's buffer is another file than `content`, the attribute 'gpushm.etag' that a pulled Buffer
    has, or a digest 'xxh3:...'; None: until it exists. At most `timeout` seconds, None for ever. A relay that is away
    is waited for.

    Other threads run meanwhile, and Ctrl-C works. source, transport: as pull(). Errors: Timeout, AccessDenied,
    ValueError.
    """
    known = content.encode() if isinstance(content, str) else content
    _core._pull_wait(os.fsencode(source), known, timeout, _remote(_checked(transport)))


def save(
    self: _core.Connection, buffer: str | Array | Buffer, path: Path, *, metadata: Mapping[str, str] | None = None,
    threads: int = 0, progress: Progress | None = None, shard_size: int = 0,
) -> None:
    """Writes the arrays of a Buffer, or of the buffer of that name, to a safetensors file, which appears whole under
    its path or not at all.

    shard_size: for x.safetensors, files x-00001-of-00002.safetensors and so on with so many bytes of tensors each, and
    an index x.safetensors.index.json, if one such file is not enough; 0 is always one file. metadata: a dict of str to
    str; None is what the buffer was loaded with. progress: as load(). Errors: those of open() for a name, NotSupported
    (a dtype that such files do not have), OSError.
    """
    said = None if metadata is None else json.dumps(metadata).encode()
    _core._save(_buffer_of(self, buffer), os.fsencode(path), said, threads, _callable(progress), shard_size)


def verify(self: _core.Connection, buffer: str | Array | Buffer, *, progress: Progress | None = None) -> str:
    """Reads a buffer's arrays back and compares them with the digest that load() left. Returns the digest.

    buffer: a Buffer, or the name of one. progress: as load(). Errors: BadContents (they differ), Error with
    errno.ENODATA (there is no digest).
    """
    return _core._verify(_buffer_of(self, buffer), _callable(progress), False)


# ---- arguments ----


def _path(path: Path | None) -> bytes | None:
    return None if path is None else os.fsencode(path)


def _paths(sources: Sources) -> list[bytes]:
    one = isinstance(sources, (str, bytes, os.PathLike))
    return [os.fsencode(s) for s in cast("Sequence[Path]", [sources] if one else sources)]


def _checked(transport: Transport | None) -> Transport:
    t = Transport() if transport is None else transport
    if not isinstance(t, Transport):
        raise TypeError(f"transport is a gpushm.Transport, not {t!r}")
    if t.io not in ("auto", "cached", "direct"):
        raise ValueError(
            'io is "auto", "cached" to read through the page cache, or "direct" to read past it, not ' f'"{t.io}"'
        )
    if t.via not in ("https", "nixl"):
        raise ValueError(f'via is "https" or "nixl", not "{t.via}"')
    return t


def _keep_ms(seconds: float | None) -> int:
    if seconds is not None and not seconds >= 0:
        raise ValueError("keep is a number of seconds from 0, or math.inf")
    return _calls.ms(seconds or 0)


def _remote(t: Transport) -> tuple[Any, ...]:
    return _path(t.token_file), _path(t.ca), _path(t.cert), _path(t.key), t.patience


def _callable(progress: Progress | None) -> Progress | None:
    if progress is None or callable(progress):
        return progress
    raise TypeError(f"progress is a function of (bytes done, bytes in all), or None, not {progress!r}")


def _buffer_of(connection: _core.Connection, what: str | Array | Buffer) -> Buffer:
    if isinstance(what, str):
        return connection.open_many(what)
    if not isinstance(what, (_core.Array, _core.Buffer)):
        raise TypeError(f"the first argument is a Buffer, or the name of one, not {type(what)!r}")
    return what.buffer if isinstance(what, _core.Array) else what


_calls.bind(load, pull, save, verify)
