"""Writing values into columns: checked by the table of casts, quick where nothing is to be cast.

A row becomes part of the store only when it is committed. So values are checked and written column by column, and the
next step overwrites the values of a refused step.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import cython
import numpy as np
from numpy import float64, ndarray
from numpy.typing import NDArray

from headrace.arrays import ArraySpec, check_array
from headrace.store.staging import Stage

if cython.compiled:
    from cython.cimports.cpython.long import PyLong_AsLongLongAndOverflow
    from cython.cimports.headrace.kernels.hints import hr_settle, hr_stream
    from cython.cimports.libc.string import memcpy, memmove
    from cython.cimports.numpy import (
        PyArray_CheckExact,
        PyArray_CompareLists,
        PyArray_DATA,
        PyArray_DIMS,
        PyArray_ISCARRAY_RO,
        PyArray_NDIM,
        PyArray_ScalarAsCtype,
        PyArray_STRIDE,
        PyArray_TYPE,
    )
else:
    from headrace.kernels.kinds import Bool, Int

Check = Callable[[Any], NDArray[Any]]
"""Makes an array of a column's dtype and shape of a value, or raises SpecError."""

NARROW_ROW = 1 << 16
"""Bytes: while a wider row is copied, in ten microseconds or more, other threads go on."""
# A wide row is copied in pieces of so many bytes: on some processors that is quicker than in one. In a column of more
# bytes than caches keep it goes past them, which takes the same time on all that were measured (design/server.md).
_PIECE_NBYTES = 1 << 18
_KEPT_NBYTES = 1 << 22


class Column:
    """One column as it is written one row at a time.

    An array of its very dtype and shape is copied as bytes, and a number of Python or NumPy that it can hold is written
    as it is: a tenth of a microsecond less than by NumPy, for each value. NumPy and the check know every other case.

    Args:
        key: of its values.
        array: dtype[rows, ...].
        check: for a value that is neither an array of that very dtype and shape nor a plain number.
    """

    def __init__(self, key: Any, array: NDArray[Any], check: Check) -> None:
        self.key = key
        self.array = array
        self.check = check
        self._dtype = np.dtype(array.dtype.type)
        self._shape = array.shape[1:]
        self._native = self._dtype.type if self._shape == () else None
        self._number = self._dtype.num
        self._width = array[:1].nbytes
        # Rows that are written here; none of those that NumPy must write.
        first = array[:1].flags
        is_plain = array.dtype.isnative and array.flags.behaved and first.c_contiguous
        self._rows = len(array) if is_plain else 0
        self._is_wide = self._width > NARROW_ROW
        self._is_kept = array.nbytes <= _KEPT_NBYTES
        # Which numbers of Python are written here.
        kind = self._dtype.kind if self._shape == () else ""
        self._is_bool = kind == "b"
        self._is_integer = kind in ("i", "u")
        self._is_float32 = kind == "f" and self._width == 4
        self._is_float64 = kind == "f" and self._width == 8
        self._most = float(np.finfo(np.float32).max)
        if self._is_integer:
            limits = np.iinfo(self._dtype)
            self._least_integer = int(limits.min)
            self._most_integer = min(int(limits.max), 2**63 - 1)

    def made_of(self) -> tuple[Any, NDArray[Any], Check]:
        """Returns the arguments of the constructor."""
        return self.key, self.array, self.check

    def put(self, row: Int, value: Any) -> None:
        """Writes a value at a row.

        Raises:
            SpecError: it does not fit.
        """
        if cython.compiled and self._is_written(row, value):
            return
        kind = type(value)
        if kind is self._native or (
            kind is ndarray and value.dtype is self._dtype and value.shape == self._shape
        ):
            self.array[row] = value
        else:
            self.array[row] = self.check(value)

    def _is_written(self, row: Int, value: Any) -> Bool:
        """Writes a value that needs no NumPy; returns whether it was one."""
        if cython.compiled:
            if row < 0 or row >= self._rows:
                return False
            to = cython.cast(cython.p_uchar, PyArray_DATA(self.array)) + row * PyArray_STRIDE(self.array, 0)
            if PyArray_CheckExact(value):
                if not self._is_alike(value):
                    return False
                given = cython.cast(cython.p_uchar, PyArray_DATA(value))
                if not self._is_wide:
                    memmove(to, given, self._width)
                else:
                    with cython.nogil:
                        self._move_wide(to, given)
                return True
            kind = type(value)
            if kind is self._native:
                # NumPy's own numbers with all their bits: on the way through a double a signalling NaN is quiet.
                PyArray_ScalarAsCtype(value, to)
                return True
            if self._is_integer:
                return kind is int and self._is_integer_written(to, value)
            if self._is_float64 and kind is float:
                cython.cast(cython.p_double, to)[0] = cython.cast(cython.double, value)
                return True
            if self._is_float32 and (kind is float or kind is float64):
                number = cython.cast(cython.double, value)
                # One out of range would become infinite.
                if -self._most <= number <= self._most:
                    cython.cast(cython.p_float, to)[0] = cython.cast(cython.float, number)
                    return True
                return False
            if self._is_bool and kind is bool:
                to[0] = value is True
                return True
        return False

    def _move_wide(self, to: Any, given: Any) -> None:
        """Copies a wide row."""
        if cython.compiled:
            # A value that begins before the row and ends in it would be written over before its end is read:
            # test_put_one_takes_a_wide_row_that_overlaps_its_place.
            if given < to + self._width and to < given + self._width:
                memmove(to, given, self._width)
            elif self._is_kept:
                place: Int = 0
                while place < self._width:
                    memcpy(to + place, given + place, min(_PIECE_NBYTES, self._width - place))
                    place += _PIECE_NBYTES
            else:
                rest: Int = self._width % 16
                hr_stream(to, given, self._width - rest)
                memcpy(to + self._width - rest, given + self._width - rest, rest)
                hr_settle()

    def _is_alike(self, value: NDArray[Any]) -> Bool:
        """Returns whether an array has the dtype, the shape and the memory layout of a row."""
        if cython.compiled:
            axes = PyArray_NDIM(value)
            is_alike: Bool = (
                PyArray_TYPE(value) == self._number
                and axes + 1 == PyArray_NDIM(self.array)
                and PyArray_CompareLists(PyArray_DIMS(value), PyArray_DIMS(self.array) + 1, axes)
                and PyArray_ISCARRAY_RO(value)
            )
            return is_alike
        else:
            return False

    def _is_integer_written(self, to: Any, value: Any) -> Bool:
        """Writes an integer of Python if it is in range; returns whether it is."""
        if cython.compiled:
            is_larger: cython.int = 0
            number: Int = PyLong_AsLongLongAndOverflow(value, cython.address(is_larger))
            if is_larger or not self._least_integer <= number <= self._most_integer:
                return False  # The table of casts says it better.
            if self._width == 8:
                cython.cast(cython.p_longlong, to)[0] = number
            elif self._width == 4:
                cython.cast(cython.p_int, to)[0] = cython.cast(cython.int, number)
            elif self._width == 2:
                cython.cast(cython.p_short, to)[0] = cython.cast(cython.short, number)
            else:
                to[0] = cython.cast(cython.uchar, number)
            return True
        else:
            return False


class RowColumns:
    """Columns as they are written one row at a time.

    Args:
        columns: of each the key of its values, `dtype[rows, ...]`, and the check; see `Column`.
    """

    def __init__(self, columns: Iterable[tuple[Any, NDArray[Any], Check]]) -> None:
        self._columns = [Column(key, array, check) for key, array, check in columns]

    def put(self, row: Int, values: Any) -> None:
        """Writes one value of every column at a row.

        Args:
            values: key to value; or a sequence, whose indexes are the keys.

        Raises:
            SpecError: a value does not fit; the row, which is not committed, may have some of the others.
            KeyError: a value is missing.
        """
        column: Column
        for column in self._columns:
            column.put(row, values[column.key])

    def is_written(self, row: Int, values: Any) -> Bool:
        """Writes a row of which no value needs a check, without other threads in between; returns whether it did.

        Otherwise the row may have some of the values. No column may be wider than `NARROW_ROW`.
        """
        column: Column
        for column in self._columns:
            if not column._is_written(row, values[column.key]):
                return False
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        # A copy writes to the arrays that it was made with.
        return RowColumns, ([column.made_of() for column in self._columns],)


class WholeArrays:
    """Arrays that are written whole, one value each. A value that is the array itself is there already.

    Args:
        arrays: of each the key of its value, the array, and the check; see `Column`.
    """

    def __init__(self, arrays: Iterable[tuple[Any, NDArray[Any], Check]]) -> None:
        self._columns = []
        self._arrays = []
        for key, array, check in arrays:
            self._columns.append(Column(key, array[None], check))
            self._arrays.append(array)

    def put(self, values: Any) -> None:
        """Writes a value into every array; see `RowColumns.put`."""
        column: Column
        for place in range(len(self._columns)):
            column = self._columns[place]
            value = values[column.key]
            if value is not self._arrays[place]:
                column.put(0, value)


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
        small, wide = [], []
        for name, column, spec in columns:
            check = partial(check_array, spec=spec, path=name, leading=(lanes,))
            if name in stage.arrays:
                small.append((name, stage.arrays[name], check))
            else:
                wide.append((name, _steps(column, lanes), check))
        self._stage = WholeArrays(small)
        self._wide = RowColumns(wide)

    def put(self, row: Int, values: Any) -> None:
        """Writes one value for each lane of every column, `dtype[lanes, ...]`; see `RowColumns.put`.

        Args:
            row: the first row, for columns that are not staged.
            values: name to value.
        """
        self._stage.put(values)
        self._wide.put(row, values)


def _steps(column: NDArray[Any], lanes: int) -> NDArray[Any]:
    """Returns a view of each row of a column with the rows after it, `lanes` in all: `dtype[rows, lanes, ...]`."""
    shape = max(0, len(column) - lanes + 1), lanes, *column.shape[1:]
    return np.lib.stride_tricks.as_strided(column, shape, (column.strides[0], *column.strides))
