# SPDX-License-Identifier: MIT
"""One record of an array of records: Numba's DeviceRecord."""

from __future__ import annotations

from typing import Any


class Record:
    """A record in its array's memory: what an integer picks from an Array of records.

    record["x"] and record.x read a field, record["x"] = 1 writes it through; a field that is an array is an Array,
    sharing memory. numpy.asarray(record), or copy_to_host(), copies all of it. It pickles as its array does.
    """

    __slots__ = ("_array",)

    def __init__(self, array: Any) -> None:
        """`array` has no axes."""
        object.__setattr__(self, "_array", array)

    @property
    def array(self) -> Any:
        """The record as an Array without axes, which it is a face of."""
        return self._array

    @property
    def dtype(self) -> Any:
        """The numpy.dtype, with its fields."""
        return self._array.dtype

    def copy_to_host(self, out: Any = None, stream: Any = None) -> Any:
        """The record as a numpy.void; otherwise as Array.copy_to_host()."""
        return self._array.copy_to_host(out, stream)[()]

    def copy_to_device(self, source: Any, stream: Any = None) -> None:
        """Fills the record from a numpy.void, a tuple of its fields, or another record."""
        import numpy

        if isinstance(source, Record):
            source = source.copy_to_host()
        self._array.copy_to_device(numpy.array(source, self.dtype)[()], stream)

    def item(self) -> Any:
        """A tuple of the fields."""
        return self.copy_to_host().item()

    def close(self) -> None:
        """Gives up its use of the buffer, as Array.close() of a view does."""
        self._array.close()

    def __getitem__(self, name: str) -> Any:
        field = self._array[name]
        return field if field.ndim else field[()]

    def __setitem__(self, name: str, value: Any) -> None:
        self._array[name] = value

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name not in (self.dtype.fields or {}):
            raise AttributeError(f"the record has no field {name!r}")
        return self[name]

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in (self.dtype.fields or {}):
            raise AttributeError(f"the record has no field {name!r}")
        self[name] = value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return self._array.__array__(dtype, copy)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return dict(self._array.__cuda_array_interface__)

    def __reduce__(self) -> tuple[Any, ...]:
        return Record, (self._array,)

    def __eq__(self, other: object) -> Any:
        if isinstance(other, Record):
            other = other.copy_to_host()
        return self.copy_to_host() == other

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<gpushm.Record {self.item()} of {self._array.name!r}>"
