"""Writing values into columns: checked by the table of casts, quick where nothing is to be cast.

A row becomes part of the store only when it is committed, so values are checked and written column by column: what a
refused step has left behind is overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, check_array

Check = Callable[[Any], NDArray[Any]]
"""Makes an array of a column's dtype and shape of a value, or raises SpecError."""

_PYTHONS_OWN = (np.dtype(np.float64), np.dtype(np.complex128))
_PYTHONS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_FLOATS = frozenset({float, np.float64})


class RowColumns:
    """Columns as they are written one row at a time.

    Args:
        columns: of each the key of its values, `dtype[rows, ...]` (or one value, to be written at `...`), the spec of a
            row, and what is done with a value that is neither an array of that very dtype and shape nor a plain number.
    """

    def __init__(self, columns: Iterable[tuple[Any, NDArray[Any], ArraySpec, Check]]) -> None:
        self._columns = list(columns)
        self._scalars: list[Any] = []
        self._arrays: list[Any] = []
        for key, column, spec, check in self._columns:
            if spec.shape == ():
                self._scalars.append((key, _items(column), *_numbers(spec.dtype), check))
            else:
                self._arrays.append((key, column, np.dtype(spec.dtype.type), spec.shape, check))

    def put(self, row: Any, values: Any) -> None:
        """Write one value of every column at a row.

        Args:
            values: key to value, or a sequence where the keys are places.

        Raises:
            SpecError: a value does not fit; the row, which is not committed, may have some of the others.
            KeyError: a value is missing.
        """
        # Written out: this is called at every step, and a call for each column takes longer than writing it.
        for key, items, native, trusted, least, most, check in self._scalars:
            value = values[key]
            kind = type(value)
            if kind is native or kind is trusted or (kind in _FLOATS and least <= value <= most):
                try:
                    items[row] = value
                    continue
                except (OverflowError, ValueError, FloatingPointError):
                    pass  # The table of casts says it better, and minds nobody's `np.errstate`.
            items[row] = check(value)
        for key, column, dtype, shape, check in self._arrays:
            value = values[key]
            if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
                column[row] = value
            else:
                column[row] = check(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's views of columns cannot be copied; with what they were made of, copies write where theirs stands.
        return RowColumns, (self._columns,)


class LaneColumns:
    """Columns as they are written one step of several lanes at a time.

    Args:
        columns: of each its name, `dtype[rows, ...]` and the spec of a row.
        lanes: how many.
    """

    def __init__(self, columns: Iterable[tuple[str, NDArray[Any], ArraySpec]], lanes: int) -> None:
        self._lanes = lanes
        self._columns = [
            (name, column, spec.dtype, (lanes, *spec.shape), spec) for name, column, spec in columns
        ]

    def put(self, row: int, values: Mapping[str, Any]) -> None:
        """Write one value for each lane of every column, `dtype[lanes, ...]`, from a row on; see `RowColumns.put`."""
        rows = slice(row, row + self._lanes)
        for name, column, dtype, shape, spec in self._columns:
            value = values[name]
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                value = check_array(value, spec, name, (self._lanes,))
            column[rows] = value


def _items(column: NDArray[Any]) -> Any:
    """What takes the numbers of a column soonest."""
    # Python's own view writes a whole number in half the time of NumPy, and refuses one that does not fit. Floats have
    # to stay with NumPy: on the way through Python's a signalling NaN would become a quiet one.
    buffer: Any = column
    return memoryview(buffer) if column.dtype.kind in "biu" and column.dtype.isnative else column


def _numbers(dtype: np.dtype[Any]) -> tuple[type, type, float, float]:
    """Which numbers need no look at the table of casts: of two types, and floats in a range.

    Nothing narrower than itself is given a float of Python unless it is in the range.
    """
    narrow = dtype.kind == "f" and dtype.itemsize < 8
    own = dtype in _PYTHONS_OWN or dtype.kind in "biu"
    least, most = (float(np.finfo(dtype).min), float(np.finfo(dtype).max)) if narrow else (np.inf, -np.inf)
    return dtype.type, _PYTHONS[dtype.kind] if own else dtype.type, least, most
