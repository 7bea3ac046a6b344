"""Writing values into columns: checked by the table of casts, quick where nothing is to be cast.

A row becomes part of the store only when it is committed, so values are checked and written column by column: what a
refused step has left behind is overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy import float32, float64, ndarray
from numpy.typing import NDArray

from headrace.spec import ArraySpec, check_array
from headrace.store.staging import Stage

Check = Callable[[Any], NDArray[Any]]
"""Makes an array of a column's dtype and shape of a value, or raises SpecError."""

_PYTHONS = {"b": bool, "i": int, "u": int, "f": float, "c": complex}
_VIEWED = frozenset("?bBhHiIlLqQfd")
"""Codes of the dtypes of which Python's memoryview writes numbers."""
_NARROW_ROW = 4096
"""Bytes: a wider row is written by NumPy, which lets other threads go on meanwhile."""


class RowColumns:
    """Columns as they are written one row at a time.

    Python's own views of memory write a number in half the time of NumPy and a short array in two thirds, so they are
    used wherever they store the same bits; bench/README.md has the figures.

    Args:
        columns: of each the key of its values, `dtype[rows, ...]`, the spec of a row, and what is done with a value
            that is neither an array of that very dtype and shape nor a plain number.
    """

    def __init__(self, columns: Iterable[tuple[Any, NDArray[Any], ArraySpec, Check]]) -> None:
        self._columns = list(columns)
        self._numbers: list[Any] = []
        self._floats: list[Any] = []
        self._vectors: list[Any] = []
        self._arrays: list[Any] = []
        for key, column, spec, check in self._columns:
            dtype = np.dtype(spec.dtype.type)
            viewed = _is_viewed(column)
            if spec.shape == () and dtype.char == "f" and viewed:
                limit = float(np.finfo(dtype).max)
                self._floats.append((key, memoryview(_buffer(column)), column, -limit, limit, check))
            elif spec.shape == ():
                items = memoryview(_buffer(column)) if viewed else column
                self._numbers.append((key, items, _python_type(dtype), dtype.type, check))
            elif viewed and (flat := _flat(column)) is not None:
                vector = memoryview(_buffer(flat)), column.strides[0] // dtype.itemsize, *spec.shape
                self._vectors.append((key, *vector, column, check))
            else:
                self._arrays.append((key, column, dtype, spec.shape, check))

    def put(self, row: int, values: Any) -> None:
        """Write one value of every column at a row.

        Args:
            values: key to value, or a sequence where the keys are places.

        Raises:
            SpecError: a value does not fit; the row, which is not committed, may have some of the others.
            KeyError: a value is missing.
        """
        # Written out: this is called at every step, and a call for each column takes longer than writing it.
        for key, items, python, native, check in self._numbers:
            value = values[key]
            kind = type(value)
            if kind is python or kind is native:
                try:
                    items[row] = value
                    continue
                except (OverflowError, ValueError):
                    pass  # An integer out of range: the table of casts says it better.
            items[row] = check(value)
        for key, items, column, least, most, check in self._floats:
            value = values[key]
            kind = type(value)
            # A double out of range would become infinite.
            if (kind is float or kind is float64) and least <= value <= most:
                items[row] = value
            else:
                # On the way through Python's double a signalling NaN would become a quiet one.
                column[row] = value if kind is float32 else check(value)
        for key, items, step, size, column, check in self._vectors:
            value = values[key]
            if type(value) is ndarray:
                start = row * step
                try:
                    items[start : start + size] = value
                    continue
                except ValueError:
                    pass  # Another dtype or shape.
            column[row] = check(value)
        if self._arrays:
            _write(self._arrays, row, values)

    def __reduce__(self) -> tuple[Any, ...]:
        # Python's views of columns cannot be copied; with what they were made of, copies write where theirs stands.
        return RowColumns, (self._columns,)


class WholeArrays:
    """Arrays that are written whole, one value each. A value that is the array itself is there already.

    Args:
        arrays: of each the key of its value, the array, and what is done with a value that is not an array of that very
            dtype and shape.
    """

    def __init__(self, arrays: Iterable[tuple[Any, NDArray[Any], Check]]) -> None:
        self._rows: list[Any] = []
        self._others: list[Any] = []
        for key, array, check in arrays:
            if array.ndim == 1 and _is_viewed(array):
                self._rows.append((key, memoryview(_buffer(array)), array, check))
            else:
                self._others.append((key, array, np.dtype(array.dtype.type), array.shape, check))

    def put(self, values: Any) -> None:
        """Write a value into every array; see `RowColumns.put`."""
        for key, items, array, check in self._rows:
            value = values[key]
            if value is array:
                continue
            if type(value) is ndarray:
                try:
                    items[:] = value
                    continue
                except ValueError:
                    pass  # Another dtype or shape.
            array[...] = check(value)
        for key, array, dtype, shape, check in self._others:
            value = values[key]
            if value is array:
                continue
            if type(value) is ndarray and value.dtype is dtype and value.shape == shape:
                array[...] = value
            else:
                array[...] = check(value)


class LaneColumns:
    """Columns as they are written one step of several lanes at a time.

    Args:
        columns: of each its name, `dtype[rows, ...]` and the spec of a row.
        lanes: how many.
        stage: of these lanes; its columns are written there, and taken from there when the step is committed.
    """

    def __init__(
        self, columns: Iterable[tuple[str, NDArray[Any], ArraySpec]], lanes: int, stage: Stage
    ) -> None:
        self._lanes = lanes
        small, self._wide = [], []
        for name, column, spec in columns:
            check = partial(check_array, spec=spec, path=name, leading=(lanes,))
            if name in stage.arrays:
                small.append((name, stage.arrays[name], check))
            else:
                self._wide.append((name, column, spec.dtype, (lanes, *spec.shape), check))
        self._stage = WholeArrays(small).put

    def put(self, row: int, values: Mapping[str, Any]) -> None:
        """Write one value for each lane of every column, `dtype[lanes, ...]`; see `RowColumns.put`.

        Args:
            row: the first row, for columns that are not staged.
            values: name to value.
        """
        self._stage(values)
        if self._wide:
            _write(self._wide, slice(row, row + self._lanes), values)


def _write(columns: Iterable[tuple[Any, ...]], where: int | slice, values: Any) -> None:
    """Write a value into each column, by NumPy.

    Args:
        columns: of each the key of its value, the column, the value's dtype and shape, and what is done with another.
        where: a row, or rows that have one value.
    """
    for key, column, dtype, shape, check in columns:
        value = values[key]
        if type(value) is ndarray and value.dtype is dtype and value.shape == shape:
            column[where] = value
        else:
            column[where] = check(value)


def _is_viewed(column: NDArray[Any]) -> bool:
    """Whether Python's view of a column writes its numbers."""
    return column.dtype.isnative and column.dtype.char in _VIEWED and column.flags.behaved


def _python_type(dtype: np.dtype[Any]) -> type:
    """Python's type of the numbers that such a column keeps as they are; where there is none, NumPy's."""
    if dtype.kind in "biu" or dtype in (np.dtype(np.float64), np.dtype(np.complex128)):
        return _PYTHONS[dtype.kind]
    return dtype.type


def _flat(column: NDArray[Any]) -> NDArray[Any] | None:
    """`dtype[...]` from the first to the last number of a column whose rows are short vectors; None for others.

    What stands between its rows, other columns of the same records, is seen as numbers of this dtype too.
    """
    if column.ndim != 2 or not 0 < column[:1].nbytes <= _NARROW_ROW:
        return None
    step, rest = divmod(column.strides[0], column.itemsize)
    if rest or step < column.shape[1] or column.strides[1] != column.itemsize:
        return None
    numbers = (column.shape[0] - 1) * step + column.shape[1]
    return np.lib.stride_tricks.as_strided(column, (numbers,), (column.itemsize,))


def _buffer(column: NDArray[Any]) -> Any:
    # mypy knows of no buffer in NumPy's arrays before Python 3.12.
    return column
