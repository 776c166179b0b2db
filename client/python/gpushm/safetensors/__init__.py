# SPDX-License-Identifier: MIT
"""safetensors' functions, over memory that all processes of a machine share.

    from gpushm.safetensors import safe_open                       # instead of: from safetensors import safe_open

    with safe_open("model.safetensors", framework="pt", device=0) as f:
        for name in f.keys():
            tensor = f.get_tensor(name)                            # no copy

The first process that needs a tensor loads the file into a buffer of gpushm's; all others attach to it. The buffer
belongs to this user, is sealed, and is named safetensors/POOL/KEY, where KEY changes with the file. A buffer of another
user is used only if the user is root or in $GPUSHM_TRUST; else this user gets one of its own, under ~/safetensors/.
A buffer ends with the last process that uses it.

Tensors on the CPU may be written to: the process gets pages of its own, and nobody else sees the change. A write to a
tensor on a GPU fails, and ends the process's use of that GPU: write to tensor.clone().

Environment:
    GPUSHM_SAFETENSORS_FALLBACK=1   if gpushm can't load a file (no daemon runs, the pool is full), safetensors reads
                                    it into the process's own memory, with a FallbackWarning; else that is an error
    GPUSHM_SAFETENSORS_KEEP=1       buffers stay when nobody uses them, for the next start: `gpushmctl rm` removes them
    GPUSHM_SAFETENSORS_MODE=0640    who may open the buffers, as of a file; 0600 if it is not set
    GPUSHM_SAFETENSORS_POOL=NAME    the pool for tensors on the CPU, of kind host; "host" if it is not set

gpushm.safetensors.torch, .numpy and .flax have load_file(), save_file(), load() and save() as safetensors' modules of
these names. What else those modules and safetensors have is found here, too, and is theirs.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from .. import _core
from . import _frameworks
from ._copies import FallbackWarning
from ._file import File, options
from ._header import SafetensorError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .._typing import Buffer

__all__ = ["FallbackWarning", "SafetensorError", "load_file", "safe_open", "save_file"]


class safe_open:
    """Opens a safetensors file and returns tensors as they are asked for, as safetensors.safe_open does.

    Only the header is read before the first tensor, or the first part of one, is asked for.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        framework: str,
        device: str | int | None = "cpu",
        *,
        backend: str = "mmap",
        fallback: bool | None = None,
        keep: bool | None = None,
    ) -> None:
        """framework: "pt", "np" or "jax", or another name that safetensors has for them. device: "cpu", "cuda:1" or the
        ordinal of a GPU; another device of PyTorch's gets copies. backend: how safetensors reads the file, if it must.
        fallback, keep: instead of the environment's GPUSHM_SAFETENSORS_FALLBACK and GPUSHM_SAFETENSORS_KEEP.

        Errors: FileNotFoundError, SafetensorError (the file breaks the format; a name that is not there), and those of
        gpushm.load() when the file is loaded.
        """
        if backend not in ("mmap", "pread"):
            raise SafetensorError(f'backend "{backend}" is invalid (expected one of: "mmap", "pread")')
        path = os.fspath(filename)
        if not isinstance(path, str):
            raise TypeError(f"filename must be a str or a path of str, not {type(path).__name__}")
        kind = _frameworks.framework_of(framework)
        place = _frameworks.Place(device, kind)
        self._file: File | None = File(path, kind, place, backend, options(fallback, keep))

    def _open_file(self) -> File:
        if self._file is None:
            raise SafetensorError("File is closed")
        return self._file

    def keys(self) -> list[str]:
        """The names of the tensors, in alphabetical order."""
        return sorted(self._open_file().header.tensors)

    def offset_keys(self) -> list[str]:
        """The names of the tensors, in the order of the file."""
        return list(self._open_file().header.tensors)

    def metadata(self) -> dict[str, str] | None:
        """The file's __metadata__; None: it has none."""
        return self._open_file().header.metadata

    def get_tensor(self, name: str) -> Any:
        """The tensor of that name, over the shared memory."""
        return self._open_file().tensor(name)

    def get_tensors(self) -> dict[str, Any]:
        """All tensors, in the order of the file."""
        return self._open_file().tensors()

    def get_slice(self, name: str) -> Slice:
        """A tensor of which parts can be had: get_slice(name)[:, :128]."""
        file = self._open_file()
        file.header.find(name)
        return Slice(file, name)

    def __enter__(self) -> safe_open:
        """The object itself."""
        return self

    def __exit__(self, *raised: object) -> None:
        """Closes the file. Its tensors and slices stay."""
        self._file = None


class Slice:
    """A tensor of a file, of which parts can be had by an index."""

    def __init__(self, file: File, name: str) -> None:
        """safe_open.get_slice() makes one."""
        self._file: File = file
        self._name: str = name

    def get_shape(self) -> list[int]:
        """The shape of the whole tensor."""
        return list(self._file.header.find(self._name).shape)

    def get_dtype(self) -> str:
        """The dtype as the format writes it: "F32"."""
        return self._file.header.find(self._name).dtype

    def __getitem__(self, key: Any) -> Any:
        """A part of the tensor, over the shared memory."""
        return self._file.part(self._name, key)


def load_file(
    filename: str | os.PathLike[str],
    device: str | int = "cpu",
    *,
    framework: str | None = None,
    backend: str = "mmap",
    fallback: bool | None = None,
    keep: bool | None = None,
) -> dict[str, Any]:
    """All tensors of a file, by their names. framework: as for safe_open(); None is PyTorch where it is installed, else
    NumPy. Otherwise as safe_open().
    """
    framework = _frameworks.default_framework() if framework is None else framework
    with safe_open(filename, framework, device, backend=backend, fallback=fallback, keep=keep) as f:
        return f.get_tensors()


def save_file(
    tensors: Mapping[str, Any] | Buffer,
    filename: str | os.PathLike[str],
    metadata: dict[str, str] | None = None,
) -> None:
    """Writes tensors of PyTorch, or arrays of NumPy or JAX, to a file, as safetensors does; or all Arrays of a Buffer,
    as gpushm.save() does.
    """
    if isinstance(tensors, _core.Buffer):
        _core.save(tensors, filename, metadata=metadata)
        return
    # safetensors takes a dict only; gpushm.torch.open() gives another mapping.
    _writer_of(tensors)(dict(tensors.items()), filename, metadata=metadata)


def _writer_of(tensors: Mapping[str, Any]) -> Any:
    """save_file() of safetensors' module for these tensors."""
    first = next(iter(tensors.values()), None)
    module = "numpy"
    if isinstance(first, getattr(sys.modules.get("torch"), "Tensor", ())):
        module = "torch"
    elif isinstance(first, getattr(sys.modules.get("jax"), "Array", ())):
        module = "flax"
    return importlib.import_module(f"safetensors.{module}").save_file


def __getattr__(name: str) -> Any:
    """What safetensors has beside: serialize(), deserialize(), TensorSpec and others."""
    if name.startswith("__") and name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import safetensors

    return getattr(safetensors, name)
