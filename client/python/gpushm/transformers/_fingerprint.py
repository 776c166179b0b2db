# SPDX-License-Identifier: MIT
"""What a published model is: class, files, dtype, quantisation, configuration. It is kept in attributes.

The configuration is compressed: attributes have 4,096 bytes in all. One that is still too large is kept as a hash, and
then an error can't name the entry that differs.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import zlib
from collections.abc import Mapping
from typing import Any

from .. import _core
from ..torch._fingerprint import differing, encoded

_FIELDS = "transformers.model"
_CONFIG = "transformers.config"
_CONFIG_MAX = 2800  # bytes, compressed
_NAMED = "class", "dtype", "quantization"  # in errors, each

# Entries of a configuration that change no weight.
_IGNORED = {
    "_attn_implementation",
    "_attn_implementation_internal",
    "_commit_hash",
    "_experts_implementation",
    "_experts_implementation_internal",
    "_name_or_path",
    "architectures",
    "attn_implementation",
    "distributed_config",
    "dtype",
    "name_or_path",
    "output_attentions",
    "output_hidden_states",
    "quantization_config",
    "return_dict",
    "torch_dtype",
    "transformers_version",
    "transformers_weights",
    "use_cache",
}


def of(model: Any, load_config: Any, files: list[str] | None) -> dict[str, Any]:
    """Of a model that is about to be loaded from these files."""
    quantizer = load_config.hf_quantizer
    return {
        "class": type(model).__name__,
        "dtype": str(load_config.dtype).removeprefix("torch."),
        "quantization": None if quantizer is None else _plain(quantizer.quantization_config.to_dict()),
        "config": {k: v for k, v in _plain(model.config.to_dict()).items() if k not in _IGNORED},
        "files": _hash_of(files or []),
    }


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """As it is when it was JSON: tuples are lists, and keys are texts."""
    found: dict[str, Any] = json.loads(json.dumps(values, default=str, sort_keys=True))
    return found


def _hash_of(files: list[str]) -> str:
    """Changes with the names, sizes and times of the files."""
    found = [(os.path.basename(file), os.stat(file).st_size, os.stat(file).st_mtime_ns) for file in files]
    return hashlib.sha256(repr(sorted(found)).encode()).hexdigest()[:16]


def attrs(fingerprint: Mapping[str, Any]) -> dict[str, str | bytes]:
    """The attributes of a buffer of that model."""
    config = zlib.compress(encoded(fingerprint["config"]).encode(), 9)
    fields = {key: value for key, value in fingerprint.items() if key != "config"}
    fields["config"] = hashlib.sha256(encoded(fingerprint["config"]).encode()).hexdigest()[:16]
    found: dict[str, str | bytes] = {_FIELDS: encoded(fields).encode()}
    if len(config) <= _CONFIG_MAX:
        found[_CONFIG] = config
    return found


def is_in(buffer: _core.Buffer) -> bool:
    """Whether the buffer says what model it has."""
    return buffer.attr(_FIELDS) is not None


def check(buffer: _core.Buffer, here: Mapping[str, Any]) -> None:
    """LayoutError: the buffer is of another model; it names the field."""
    found = buffer.attr(_FIELDS)
    if found is None:
        raise _core.LayoutError(
            errno.EINVAL,
            f'buffer "{buffer.name}" was not made by gpushm.transformers: choose another name, or attach a model by '
            "gpushm.torch.attach()",
        )
    there = json.loads(found)
    config = buffer.attr(_CONFIG)
    ours, theirs = ({key: side.get(key) for key in _NAMED} for side in (here, there))
    problems = differing(ours, theirs)
    if config is not None:
        problems += differing(here["config"], json.loads(zlib.decompress(config)), "config.")
    elif hashlib.sha256(encoded(here["config"]).encode()).hexdigest()[:16] != there["config"]:
        problems.append("the configuration differs")
    if not problems and here["files"] != there["files"]:
        problems.append("it was made of other files, or of these before they were changed")
    if problems:
        raise _core.LayoutError(
            errno.EINVAL,
            f'buffer "{buffer.name}" has another model: {"; ".join(problems)}. Choose another name, or remove the '
            f"buffer (gpushmctl rm {buffer.name})",
        )
