# SPDX-License-Identifier: MIT
"""A safetensors file in shared memory: loaded by the first process that needs a tensor, attached to by the others.

The buffer of a file is named after the pool, and after the key of the file's header, inode and times: another file, or
the same file after a change, has another name. A buffer of that name that belongs to a user who is not trusted is left
alone: then the file is loaded once for this user, under a private name.
"""

from __future__ import annotations

import errno
import os
import threading
import warnings
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core, _models
from . import _copies, _frameworks, _header, _slices
from ._copies import FallbackWarning
from ._header import SafetensorError

if TYPE_CHECKING:
    from .._typing import Buffer

_ENVIRONMENT = "GPUSHM_SAFETENSORS_"
_PATH_MAX = 1024  # of a path, in an attribute
original: Any = None  # safetensors' own safe_open, where gpushm.share has put this package's in its place


class Options(NamedTuple):
    """How files are shared."""

    fallback: bool  # where gpushm can't load the file, safetensors reads it
    keep: bool  # the memory stays when no process uses it any more
    mode: int  # who may open it, as of a file
    pool: str  # for device "cpu"


def options(fallback: bool | None = None, keep: bool | None = None) -> Options:
    """The arguments; None: what the environment says."""
    return Options(
        fallback=_is_set("FALLBACK") if fallback is None else fallback,
        keep=_is_set("KEEP") if keep is None else keep,
        mode=_mode(),
        pool=os.environ.get(_ENVIRONMENT + "POOL") or "host",
    )


def _is_set(name: str) -> bool:
    found = os.environ.get(_ENVIRONMENT + name, "")
    if found not in ("", "0", "1"):
        raise ValueError(f"{_ENVIRONMENT}{name} is 0 or 1, not {found!r}")
    return found == "1"


def _mode() -> int:
    found = os.environ.get(_ENVIRONMENT + "MODE") or "0600"
    try:
        return int(found, 8)
    except ValueError:
        raise ValueError(f"{_ENVIRONMENT}MODE is an octal number such as 0640, not {found!r}") from None


class File:
    """A file of which tensors can be had, also after safe_open() has closed it."""

    def __init__(
        self, path: str, framework: _frameworks.Framework, place: _frameworks.Place, backend: str, how: Options
    ) -> None:
        self._path: str = os.path.abspath(path)
        self._framework: _frameworks.Framework = framework
        self._place: _frameworks.Place = place
        self._backend: str = backend
        self._how: Options = how
        self._lock: threading.Lock = threading.Lock()
        self._buffer: Buffer | None = None
        self._original: Any = None  # safetensors' own safe_open
        try:
            self._key: str = _header.key_of(path)
        except _core.NotSupported as error:  # libgpushm-load is not here
            self._fall_back(error)
        self.header: _header.Header = _header.read(path)

    def tensor(self, name: str) -> Any:
        """The whole tensor of that name."""
        self.header.find(name)
        buffer = self._attached()
        if buffer is None:
            return self._original.get_tensor(name)
        made = _frameworks.tensor(_array(buffer, name), self._framework, self._place)
        if self._framework == "pt":
            _copies.look(made)
        return made

    def tensors(self) -> dict[str, Any]:
        """All tensors, in the order of the file."""
        names, found = list(self.header.tensors), {}
        if self._framework == "pt" and names and not self._place.other:
            buffer = self._attached()
            if buffer is not None:
                found = _frameworks.many(buffer, [n for n in names if n in buffer])
            _copies.look(*found.values())
        return {name: found[name] if name in found else self.tensor(name) for name in names}

    def part(self, name: str, key: Any) -> Any:
        """tensor[key] of the tensor of that name."""
        if self._attached() is None:
            return self._original.get_slice(name)[key]
        if self._framework != "pt":
            _slices.check(key, self.header.find(name).shape)
            key = _slices.of_an_array(key)
        return self.tensor(name)[key]

    def _attached(self) -> Buffer | None:
        """The buffer; None: safetensors has the file."""
        with self._lock:
            if self._buffer is None and self._original is None:
                try:
                    self._buffer = _load(self._path, self._key, self._place.gpu, self._how)
                except _core.BadContents as error:
                    raise SafetensorError(error.strerror) from error
                except _core.Error as error:
                    self._fall_back(error)
            return self._buffer

    def _fall_back(self, error: _core.Error) -> None:
        if not self._how.fallback:
            error.add_note(
                f"{_ENVIRONMENT}FALLBACK=1, or fallback=True, reads the file by safetensors into this process's own "
                "memory instead."
            )
            raise error
        import safetensors

        warnings.warn(
            f"{self._path} is not shared: safetensors reads it into this process's own memory. {error}",
            FallbackWarning,
            stacklevel=2,
        )
        device = self._place.other or ("cpu" if self._place.gpu is None else f"cuda:{self._place.gpu}")
        framework = {"pt": "pt", "np": "np", "jax": "flax"}[self._framework]
        safe_open = original or safetensors.safe_open
        self._original = safe_open(self._path, framework, device=device, backend=self._backend)


def _array(buffer: Buffer, name: str) -> Any:
    found = buffer.get(name)
    if found is None:
        raise SafetensorError(f"the file changed while it was opened: it does not contain tensor {name} any more")
    return found


# ---- buffers ----


def _check_pool(name: str) -> None:
    """Before a file is loaded that is of no use: programs write to tensors on the CPU, which needs host memory."""
    found = {pool.name: pool.kind for pool in _core.pools()}
    if found.get(name) == "host":
        return
    there = ", ".join(pool for pool, kind in found.items() if kind == "host") or "none"
    what = f'pool "{name}" is of kind {found[name]}' if name in found else f'there is no pool "{name}"'
    raise _core.NotFound(
        errno.ENOENT,
        f"{what}: {_ENVIRONMENT}POOL names a pool of kind host, for tensors on the CPU; there are: {there}",
    )


def _load(path: str, key: str, gpu: int | None, how: Options) -> Buffer:
    """The buffer of a file, loaded if no process has it."""
    pool = _models.pool_of(gpu, how.pool)
    if gpu is None:
        _check_pool(pool)
    access = _models.access_to("host" if gpu is None else "vmm")
    options: dict[str, Any] = {
        "pool": pool,
        "mode": how.mode,
        "transient": not how.keep,
        "attrs": {"safetensors.path": path[-_PATH_MAX:]},
    }
    try:
        return _models.load_once(path, key, f"safetensors/{pool}/{key}", access, gpu, **options)
    except (_core.Exists, _core.AccessDenied):
        # It is another user's, who is not trusted.
        return _models.load_once(path, key, f"~/safetensors/{pool}/{key}", access, gpu, **options)
