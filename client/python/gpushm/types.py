# SPDX-License-Identifier: MIT
"""The types of what the package's functions return, for annotations: nobody constructs them."""

from ._array import Record
from ._core import Connection, Frame, GraphFrame, Reader, Stream, Watch
from ._events import Events
from ._handle import Handle
from ._yields import Use

__all__ = ["Connection", "Events", "Frame", "GraphFrame", "Handle", "Reader", "Record", "Stream", "Use", "Watch"]
