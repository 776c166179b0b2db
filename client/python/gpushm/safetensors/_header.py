# SPDX-License-Identifier: MIT
"""What a safetensors file says of itself: names, dtypes and shapes of tensors, and its metadata.

libgpushm-load checks the header, more strictly than safetensors does. Here it is read once more, because tensors are
listed before, and often without, loading them.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from .. import _core

if TYPE_CHECKING:

    class SafetensorError(Exception):
        """The error of safetensors."""

else:
    try:
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """The error of safetensors, where that package is not installed."""


# The format's names of dtypes, and gpushm's.
NAMES = {
    "BOOL": "bool",
    "U8": "uint8",
    "I8": "int8",
    "U16": "uint16",
    "I16": "int16",
    "U32": "uint32",
    "I32": "int32",
    "U64": "uint64",
    "I64": "int64",
    "F16": "float16",
    "BF16": "bfloat16",
    "F32": "float32",
    "F64": "float64",
    "C64": "complex64",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E4M3FNUZ": "float8_e4m3fnuz",
    "F8_E5M2": "float8_e5m2",
    "F8_E5M2FNUZ": "float8_e5m2fnuz",
    "F8_E8M0": "float8_e8m0fnu",
}


class Tensor(NamedTuple):
    """A tensor of a file."""

    dtype: str  # as the format writes it: "F32"
    shape: list[int]


class Header(NamedTuple):
    """A file's header; tensors are in the order of their offsets."""

    tensors: dict[str, Tensor]
    metadata: dict[str, str] | None

    def find(self, name: str) -> Tensor:
        """A tensor by its name."""
        found = self.tensors.get(name)
        if found is None:
            raise SafetensorError(f"File does not contain tensor {name}")
        return found


def key_of(path: str) -> str:
    """The key of a file, after libgpushm-load has checked its header."""
    if not os.path.exists(path):
        raise FileNotFoundError(f"No such file or directory: {path}")
    try:
        return _core._load_key([os.fsencode(path)])
    except _core.BadContents as error:
        raise SafetensorError(f"Error while deserializing header: {error.strerror}") from error


def read(path: str) -> Header:
    """The header of a file that was checked."""
    with open(path, "rb") as file:
        entries: dict[str, Any] = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    metadata = entries.pop("__metadata__", None)
    order = sorted(entries, key=lambda name: entries[name]["data_offsets"])
    return Header({name: Tensor(entries[name]["dtype"], entries[name]["shape"]) for name in order}, metadata)
