"""Writing values into columns: checked by the table of casts, quick where nothing is to be cast.

A row becomes part of the store only when it is committed, so values are checked and written column by column: what a
refused step has left behind is overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, check_array

_PYTHONS_OWN = (np.dtype(np.float64), np.dtype(np.complex128))
_PYTHONS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


class RowColumns:
    """Columns as they are written one row at a time.

    Args:
        columns: `dtype[rows, ...]` each.
        specs: theirs.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any]], specs: Mapping[str, ArraySpec]) -> None:
        self._columns, self._specs = columns, specs
        self._scalars = [
            (name, _items(columns[name]), spec.dtype.type, _trusted(spec.dtype), *_range(spec.dtype))
            for name, spec in specs.items()
            if spec.shape == ()
        ]
        self._arrays = [
            (name, columns[name], spec.dtype, spec.shape) for name, spec in specs.items() if spec.shape != ()
        ]

    def put(self, row: int, values: Mapping[str, Any]) -> None:
        """Write one value of every column at a row.

        Raises:
            SpecError: a value does not fit; the row, which is not committed, may have some of the others.
            KeyError: one is missing.
        """
        # Written out: this is called at every step, and a call for each column takes longer than writing it.
        for name, items, native, trusted, least, most in self._scalars:
            value = values[name]
            kind = type(value)
            if kind is native or kind is trusted or (kind is float and least <= value <= most):
                try:
                    items[row] = value
                    continue
                except (OverflowError, ValueError):
                    pass  # The table of casts says it better.
            self._columns[name][row] = check_array(value, self._specs[name], name)
        for name, column, dtype, shape in self._arrays:
            value = values[name]
            if type(value) is not np.ndarray or value.dtype is not dtype or value.shape != shape:
                value = check_array(value, self._specs[name], name)
            column[row] = value


class LaneColumns:
    """Columns as they are written one step of several lanes at a time.

    Args:
        columns, specs: see `RowColumns`.
        lanes: how many.
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any]], specs: Mapping[str, ArraySpec], lanes: int
    ) -> None:
        self._lanes = lanes
        self._columns = [
            (name, columns[name], spec.dtype, (lanes, *spec.shape), spec) for name, spec in specs.items()
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
    """What takes single values of a column soonest."""
    # Python's own view writes a whole number in half the time of NumPy, and refuses one that does not fit. Floats have
    # to stay with NumPy: on the way through Python's a signalling NaN would become a quiet one.
    buffer: Any = column
    return memoryview(buffer) if column.dtype.kind in "biu" and column.dtype.isnative else column


def _trusted(dtype: np.dtype[Any]) -> type:
    """The numbers of Python that need no look at the table of casts: nothing narrower than itself is given a float."""
    own = dtype in _PYTHONS_OWN or dtype.kind in "biu"
    return _PYTHONS[dtype.kind] if own else dtype.type


def _range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The floats of Python that a narrower column takes all the same; none for other columns."""
    if dtype.kind != "f" or dtype.itemsize >= 8:
        return np.inf, -np.inf
    return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
