# SPDX-License-Identifier: MIT
"""Copies of arrays of all kinds in pools that a test chooses."""

from __future__ import annotations

from typing import Any

import gpushm


def to_device(obj: Any, name: str | None = None, *, stream: Any = None, **options: Any) -> gpushm.Array:
    """A new Array of that name with the elements of `obj`, which is anything that create_like() takes."""
    made = gpushm.create_like(name, obj, **options)
    try:
        made.copy_to_device(obj, stream)
    except BaseException:
        made.discard()
        raise
    return made
