# SPDX-License-Identifier: MIT
"""The records that ls(), stat(), pools(), status(), streams(), events() and a Watch return: named tuples."""

from ._core import (  # isort: skip
    BufferInfo, Event, Holder, LoggedEvent, PoolInfo, Status, StreamInfo, StreamReader, StreamStats, Usage,
)

__all__ = [
    "BufferInfo", "Event", "Holder", "LoggedEvent", "PoolInfo", "Status", "StreamInfo", "StreamReader", "StreamStats",
    "Usage",
]
