# SPDX-License-Identifier: MIT
"""The exceptions and warnings. All exceptions are gpushm.Error, and so OSErrors; most are one of Python's own, too."""

from ._core import (  # isort: skip
    AccessDenied, BadArgument, BadContents, DaemonGone, DeviceFailed, Dirty, DriverError, Error, Exists, ForkError,
    InUse, LayoutError, LimitReached, NotFound, NotPublished, NotSupported, OutOfMemory, PoolFull, ProducerDied,
    ReaderDropped, ReadOnly, StateError, StreamEnded, Timeout, TooLarge,
)
from ._libraries import DeviceWarning, ReadOnlyWarning
from ._unpublished import NotKeptWarning, UnpublishedWarning

__all__ = [
    "AccessDenied", "BadArgument", "BadContents", "DaemonGone", "DeviceFailed", "DeviceWarning", "Dirty", "DriverError",
    "Error", "Exists", "ForkError", "InUse", "LayoutError", "LimitReached", "NotFound", "NotKeptWarning",
    "NotPublished", "NotSupported", "OutOfMemory", "PoolFull", "ProducerDied", "ReadOnly", "ReadOnlyWarning",
    "ReaderDropped", "StateError", "StreamEnded", "Timeout", "TooLarge", "UnpublishedWarning",
]
