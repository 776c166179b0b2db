# SPDX-License-Identifier: MIT
"""What a published module was: its class, its configuration, the versions. It is the attribute "gpushm.torch", as JSON.

attach() compares it with the module that it fills, so that weights of another model, or weights that a quantiser or
another version has laid out in another way, are not taken for the module's own.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

import torch

from .. import _core

ATTRIBUTE = "gpushm.torch"

# A configuration above this has its hash in the attribute: attributes have 4,096 bytes in all.
_CONFIG_MAX = 2000

_ADDRESS = re.compile(r" at 0x[0-9a-f]+")

# Entries of a transformers configuration that say where it came from, and not what the model is.
_ORIGIN = {"_name_or_path", "_commit_hash", "transformers_version", "architectures", "name_or_path"}


def of(module: object, device: int, extra: Mapping[str, str] | None) -> dict[str, Any]:
    """device: of the buffer's memory; -1: the host. A state dict has no class and no configuration."""
    found: dict[str, Any] = {"torch": str(torch.__version__).partition("+")[0]}
    if isinstance(module, torch.nn.Module):
        found["class"] = f"{type(module).__module__}.{type(module).__qualname__}"
        config = _config(module)
        if config is not None:
            found["config"] = config
    if device >= 0:
        found["capability"] = ".".join(map(str, torch.cuda.get_device_capability(device)))
    for key, value in (extra or {}).items():
        if key in ("torch", "class", "config", "capability"):
            raise ValueError(f"fingerprint: {key!r} is gpushm's own field")
        found[key] = str(value)
    return found


def encoded(fingerprint: Mapping[str, Any]) -> str:
    """For the attribute."""
    return json.dumps(fingerprint, sort_keys=True, separators=(",", ":"))


def read(buffer: _core.Buffer) -> dict[str, Any]:
    """That of a buffer; empty where it has none."""
    found = buffer.attr(ATTRIBUTE)
    try:
        made = _parsed(found) if found else {}
    except ValueError:
        return {}
    return made if isinstance(made, dict) else {}


def differences(here: Mapping[str, Any], there: Mapping[str, Any], named: Mapping[str, str] | None) -> list[str]:
    """A text for each field that differs. A field that one side has not is not compared, except those that the caller
    named.
    """
    fields = (here.keys() & there.keys()) | set(named or {})
    ours, theirs = ({key: side[key] for key in fields & side.keys()} for side in (here, there))
    return differing(ours, theirs)


def differing(here: Mapping[str, Any], there: Mapping[str, Any], path: str = "") -> list[str]:
    """A text for each entry that differs, also in entries of entries."""
    found = []
    for key in sorted(here.keys() | there.keys()):
        ours, theirs = here.get(key), there.get(key)
        if isinstance(ours, dict) and isinstance(theirs, dict):
            found += differing(ours, theirs, f"{path}{key}.")
        elif ours != theirs:
            found.append(f"{path}{key} is {_said(here, key)} here and {_said(there, key)} in the buffer")
    return found


def _said(values: Mapping[str, Any], key: str) -> str:
    return json.dumps(values[key]) if key in values else "not set"


def _config(module: Any) -> Any:
    """The entries of module.config, or their hash; None: the module has none that can be read."""
    config = getattr(module, "config", None)
    if config is not None and callable(getattr(config, "to_dict", None)):
        config = config.to_dict()
    elif dataclasses.is_dataclass(config) and not isinstance(config, type):
        config = dataclasses.asdict(config)
    if not isinstance(config, Mapping):
        return None
    text = json.dumps({str(k): v for k, v in config.items() if k not in _ORIGIN}, sort_keys=True, default=_text)
    if len(text) > _CONFIG_MAX:
        return "sha256:" + hashlib.sha256(text.encode()).hexdigest()
    return _parsed(text)


def _text(value: Any) -> Any:
    """What JSON has not, in words that are equal in each process: functions have another address in each, and sets
    another order.
    """
    if isinstance(value, set | frozenset):
        return sorted(map(str, map(_text, value)))
    return _ADDRESS.sub("", str(value))


def _parsed(text: str | bytes) -> Any:
    """With NaN as a text, since as a number it differs from itself."""
    return json.loads(text, parse_constant=str)
