# SPDX-License-Identifier: MIT
"""Functions of other packages that copy the tensors of a file: a warning says what shares them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

from .. import _libraries


class FallbackWarning(RuntimeWarning):
    """The tensors of a file get memory of this process alone."""


_ASSIGN = "model.load_state_dict(load_file(path), assign=True) shares them"
# gpushm.share empties it.
INSTEAD = {
    ("safetensors", "load_model"): _ASSIGN,
    ("accelerate", "load_checkpoint_in_model"): "a model on the meta device, device_map= and no dtype= share them",
    ("transformers", "_materialize_copy"): "gpushm.transformers.from_pretrained() shares them in any dtype",
}
_DEPTH = 12  # frames from the package to such a function


def say(package: str, function: str, level: int = 1) -> None:
    """Warns once in a process of the `level`-th frame above the caller."""
    if (package, function) not in INSTEAD:
        return
    text = f"{function}() of {package} copies tensors of the file, which no other process shares then: "
    key = (package, function)
    _libraries.say(key, text + INSTEAD[key] + ".", FallbackWarning, level + 1)


def look(*tensors: Any) -> None:
    """Called with the tensors that are given to a program."""
    frame: FrameType | None = sys._getframe(1)
    for level in range(1, _DEPTH):
        if frame is None:
            return
        key = (_libraries.package_of(frame), frame.f_code.co_name)
        if key in INSTEAD and any(_copies(frame, key[0], t) for t in tensors):
            say(*key, level + 1)
            return
        frame = frame.f_back


def _copies(frame: FrameType, package: str, tensor: Any) -> bool:
    """Only another dtype makes a copy, but where accelerate is not told the devices."""
    here = frame.f_locals
    if package == "safetensors" or (package == "accelerate" and here.get("device_map") is None):
        return True
    return here.get("dtype") not in (None, tensor.dtype)
