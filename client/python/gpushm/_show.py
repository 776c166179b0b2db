# SPDX-License-Identifier: MIT
"""Tables: how objects look in a notebook, and the lists that ls(), pools() and streams() return."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core

if TYPE_CHECKING:
    from ._typing import Array, Buffer

Row = TypeVar("Row")


def size(nbytes: int | None) -> str:
    """'1.5 GiB', as gpushmctl prints it."""
    if nbytes is None:
        return ""
    if nbytes < 1024:
        return f"{nbytes} B"
    value = float(nbytes)
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        value /= 1024
        if value < 1024 or unit == "TiB":
            break
    return f"{value:.1f} {unit}"


def table(heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str = "") -> str:
    """A table in HTML."""
    from html import escape  # a millisecond of each import of the package

    head = "".join(f"<th>{escape(h)}</th>" for h in heads)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_BUFFERS: dict[str, Callable[[_core.BufferInfo], object]] = {
    "name": lambda b: b.name or "(unlinked)",
    "size": lambda b: size(b.nbytes),
    "pool": lambda b: b.pool,
    "state": lambda b: b.state + (", dirty" if b.dirty else "") + _away(b),
    "arrays": lambda b: b.arrays,
    "readers": lambda b: b.readers,
    "writers": lambda b: b.writers,
    "owner": lambda b: b.uid,
}
_POOLS: dict[str, Callable[[_core.PoolInfo], object]] = {
    "name": lambda p: f"{p.name} (default)" if p.is_default else p.name,
    "kind": lambda p: p.kind,
    "size": lambda p: size(p.nbytes),
    "used": lambda p: size(p.used),
    "pending": lambda p: size(p.pending),
    "buffers": lambda p: p.buffers,
    "device": lambda p: p.device_name or "",
    "state": lambda p: f"failed: {p.why}" if p.failed else "ready",
}
_STREAMS: dict[str, Callable[[_core.StreamInfo], object]] = {
    "name": lambda s: s.name or "(unlinked)",
    "state": lambda s: s.state,
    "newest": lambda s: s.newest,
    "slots": lambda s: s.slots,
    "slot size": lambda s: size(s.slot_nbytes),
    "pool": lambda s: s.pool,
    "readers": lambda s: ", ".join(map(_reader, s.readers)),
    "stalls": lambda s: f"{s.stalls} ({s.stalled:.1f} s)" if s.stalls else 0,
}


def _away(buffer: _core.BufferInfo) -> str:
    """', away 3/8': of all leases."""
    return f", away {buffer.away}/{buffer.readers + buffer.writers}" if buffer.away else ""


def _reader(reader: _core.StreamReader) -> str:
    """'latest', 'every 12 behind', 'share holds 3 for 1.2 s'."""
    words: list[str] = [reader.follow]
    if reader.dropped:
        words.append("dropped")
    elif reader.oldest_held >= 1:
        words.append(f"holds {reader.oldest} for {reader.oldest_held:.1f} s")
    elif reader.follow == "every" and reader.lag:
        words.append(f"{reader.lag} behind")
    return " ".join(words)


def _value(record: Any, field: str) -> str:
    """A field of a record as people write it. `buffers_max` has 32 bits."""
    value = getattr(record, field)
    if field == "mode":
        return f"0o{value:03o}"
    if field == "name" and not value and isinstance(record, _core.BufferInfo | _core.StreamInfo):
        return "(unlinked)"
    return "no limit" if field.endswith("_max") and value in (2**32 - 1, 2**64 - 1) else repr(value)


def _record_repr(record: Any) -> str:
    """__repr__() of the records: as the one of named tuples, which shows numbers in decimal."""
    kind = type(record)
    fields = ", ".join(f"{field}={_value(record, field)}" for field in kind.__match_args__)
    return f"{kind.__module__}.{kind.__name__}({fields})"


for _record in (_core.BufferInfo, _core.StreamInfo, _core.Usage):
    setattr(_record, "__repr__", _record_repr)  # noqa: B010  mypy wants no assignment to a method

# Each column's head, and its cell of a row.
_COLUMNS: dict[str, dict[str, Callable[[Any], object]]] = {"buffers": _BUFFERS, "pools": _POOLS, "streams": _STREAMS}


class Table(list[Row]):
    """A list that is shown as a table: as text by str(), as HTML in a notebook."""

    def __init__(self, rows: Iterable[Row] = (), what: str = "buffers") -> None:
        """what: "buffers", "pools" or "streams"; a str, because the functions of its columns cannot be pickled."""
        super().__init__(rows)
        self._what = what

    def _cells(self) -> list[list[str]]:
        return [[str(tell(row)) for tell in _COLUMNS[self._what].values()] for row in self]

    def __str__(self) -> str:
        lines = [[head.upper() for head in _COLUMNS[self._what]], *self._cells()]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        return "\n".join("  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip() for line in lines)

    def _repr_html_(self) -> str:
        return table(list(_COLUMNS[self._what]), self._cells())


def array_html(array: Array) -> str:
    """Array._repr_html_()."""
    if array.closed:
        return "<pre>gpushm.Array, closed</pre>"
    rows = [("shape", array.shape), ("dtype", array.dtype_name), *_buffer_rows(array.buffer)]
    rows[2:2] = [("strides", array.strides), ("bytes", size(array.nbytes))]
    name = array.name + (f":{array.array_name}" if array.array_name else "")
    return table(("gpushm.Array", name), rows)


def buffer_html(buffer: Buffer) -> str:
    """Buffer._repr_html_()."""
    if buffer.closed:
        return "<pre>gpushm.Buffer, closed</pre>"
    arrays = table(("array", "shape", "dtype"), [(k, a.shape, a.dtype_name) for k, a in buffer.items()])
    return table(("gpushm.Buffer", buffer.name), [("bytes", size(buffer.nbytes)), *_buffer_rows(buffer)]) + arrays


def _buffer_rows(buffer: Buffer) -> list[tuple[str, object]]:
    state = buffer.state + (", dirty" if buffer.dirty else "") + (", lost" if buffer.lost else "")
    state += ", suspended" if buffer.away else ""
    return [
        ("state", state),
        ("access", {"r": "read-only", "r+": "read and write", "c": "copy-on-write"}[buffer.access]),
        ("pool", f"{buffer.pool} ({buffer.kind})"),
        ("device", "host" if buffer.device is None else buffer.device),
    ]
