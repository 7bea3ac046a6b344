"""Copies of values into their rows of columns, as bytes where nothing is to be cast."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import cython
from numpy.typing import NDArray

if cython.compiled:
    from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize
    from cython.cimports.headrace.kernels.hints import hr_move, hr_settle, hr_stream
    from cython.cimports.numpy import (
        PyArray_CheckExact,
        PyArray_CompareLists,
        PyArray_DATA,
        PyArray_DIM,
        PyArray_DIMS,
        PyArray_ISCARRAY,
        PyArray_ISCARRAY_RO,
        PyArray_ISNOTSWAPPED,
        PyArray_ISWRITEABLE,
        PyArray_ITEMSIZE,
        PyArray_NBYTES,
        PyArray_NDIM,
        PyArray_STRIDE,
        PyArray_TYPE,
        PyTypeNum_ISNUMBER,
    )
else:
    from headrace.kernels.kinds import Bool, Int

    # Bytes of a row, and of the rows of a step, from which on rows go past the caches. These cannot keep a rollout of
    # them, and an ordinary store first reads what it writes over.
    STREAMED_ROW, STREAMED_STEP = 1 << 12, 1 << 17
    # Bytes that `put_rows` copies at most.
    MOST_PUT = 1 << 14


def write_row(column: NDArray[Any], row: Int, value: Any, step_rows: Int) -> Bool:
    """Does `column[row] = value` for an array of the column's dtype and the row's shape, in a third of the time.

    Args:
        column: `[rows, ...]`.
        row: in range.
        value: anything.
        step_rows: number of rows that a step of all environments writes.

    Returns:
        Whether it was written. If not, NumPy is to write it, after a check.

    >>> import numpy as np
    >>> column = np.zeros((2, 3))
    >>> if not write_row(column, 1, np.ones(3), step_rows=2):
    ...     column[1] = np.ones(3)
    >>> column.tolist(), write_row(column, 0, [1, 2, 3], step_rows=2)
    ([[0.0, 0.0, 0.0], [1.0, 1.0, 1.0]], False)
    """
    is_written: Bool = put_row(column, row, value, step_rows)
    settle_rows()
    return is_written


def put_row(column: NDArray[Any], row: Int, value: Any, step_rows: Int) -> Bool:
    """Does `write_row`; other threads and processes see the row after `settle_rows`, which many rows share."""
    if cython.compiled:
        return PyArray_CheckExact(value) and _is_copied(column, row, value, step_rows)
    else:
        return False


def settle_rows() -> None:
    """Lets rows that went past the caches be seen before what is written from now on."""
    if cython.compiled:
        hr_settle()


def write_columns(columns: list[Any], row: Int, values: Mapping[str, Any]) -> None:
    """Does `column[row] = value` for columns, in a third of the time where the value is an array of the column's dtype.

    Args:
        columns: pairs of a name and an array `[rows, ...]`.
        row: in range.
        values: by name; columns without a value get zeros.

    >>> import numpy as np
    >>> columns = [("reward", np.ones((2, 3))), ("done", np.ones((2, 3), bool))]
    >>> write_columns(columns, 1, {"reward": np.arange(3.0)})
    >>> columns[0][1].tolist(), columns[1][1].tolist()
    ([[1.0, 1.0, 1.0], [0.0, 1.0, 2.0]], [[True, True, True], [False, False, False]])
    """
    for name, column in columns:
        value = values.get(name, 0)
        if not put_row(column, row, value, 0):
            column[row] = value


def put_rows(column: NDArray[Any], row: Int, values: NDArray[Any], begin: Int, count: Int) -> Bool:
    """Does `column[row : row + count] = values[begin : begin + count]` for few bytes, without making arrays for it.

    Args:
        column: `[rows, ...]`, contiguous.
        row, begin, count: within both arrays.
        values: `[n, ...]` of the same dtype and shape of a row; its rows may be apart.

    Returns:
        Whether they were written. If not, NumPy is to write them.

    >>> import numpy as np
    >>> column = np.zeros((3, 2))
    >>> if not put_rows(column, 1, np.ones((9, 2)), 4, 1):
    ...     column[1:2] = np.ones((1, 2))
    >>> column.tolist(), put_rows(column, 1, np.ones((9, 2), np.float32), 4, 1)
    ([[0.0, 0.0], [1.0, 1.0], [0.0, 0.0]], False)
    """
    if cython.compiled:
        axes = PyArray_NDIM(column)
        kind = PyArray_TYPE(values)
        if (
            kind != PyArray_TYPE(column)
            or not PyTypeNum_ISNUMBER(kind)
            or axes != PyArray_NDIM(values)
            or not PyArray_CompareLists(PyArray_DIMS(values) + 1, PyArray_DIMS(column) + 1, axes - 1)
            or not PyArray_ISCARRAY(column)
            or not PyArray_ISNOTSWAPPED(values)
            or not 0 <= row <= PyArray_DIM(column, 0) - count
            or not 0 <= begin <= PyArray_DIM(values, 0) - count
        ):
            return False
        nbytes: Int = PyArray_ITEMSIZE(values)
        for axis in range(axes - 1, 0, -1):
            if PyArray_STRIDE(values, axis) != nbytes and PyArray_DIM(values, axis) > 1:
                return False
            nbytes *= PyArray_DIM(values, axis)
        if count * nbytes > MOST_PUT:  # NumPy gives the interpreter lock away meanwhile.
            return False
        to = cython.cast(cython.p_uchar, PyArray_DATA(column)) + row * nbytes
        apart: Int = PyArray_STRIDE(values, 0)
        source = cython.cast(cython.p_uchar, PyArray_DATA(values)) + begin * apart
        place: Int
        for place in range(count):
            hr_move(to + place * nbytes, source + place * apart, nbytes)
        return True
    else:
        return False


def joined(columns: list[NDArray[Any]]) -> bytearray:
    r"""Returns the bytes of contiguous arrays, one behind the other.

    >>> import numpy as np
    >>> joined([np.array([1, 2], np.uint8), np.array([[3]], np.uint8)])
    bytearray(b'\x01\x02\x03')
    """
    if cython.compiled:
        nbytes: Int = 0
        for leaf in range(len(columns)):
            nbytes += PyArray_NBYTES(columns[leaf])
        found: bytearray = PyByteArray_FromStringAndSize(cython.NULL, nbytes)
        to = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(found))
        for leaf in range(len(columns)):
            size: Int = PyArray_NBYTES(columns[leaf])
            hr_move(to, cython.cast(cython.p_uchar, PyArray_DATA(columns[leaf])), size)
            to += size
        return found
    else:
        return bytearray().join([column.data for column in columns])


def _is_copied(column: NDArray[Any], row: Int, value: NDArray[Any], step_rows: Int) -> Bool:
    """Copies the bytes of a row that is of this shape and dtype; returns whether it is."""
    if cython.compiled:
        kind = PyArray_TYPE(value)
        axes = PyArray_NDIM(value)
        if (
            kind != PyArray_TYPE(column)
            or not PyTypeNum_ISNUMBER(kind)
            or axes + 1 != PyArray_NDIM(column)
            or not PyArray_CompareLists(PyArray_DIMS(value), PyArray_DIMS(column) + 1, axes)
            or not PyArray_ISCARRAY_RO(value)
            or not PyArray_ISNOTSWAPPED(column)
            or not PyArray_ISWRITEABLE(column)
            or not 0 <= row < PyArray_DIM(column, 0)
        ):
            return False
        to = cython.cast(cython.p_uchar, PyArray_DATA(column)) + row * PyArray_STRIDE(column, 0)
        source = cython.cast(cython.p_uchar, PyArray_DATA(value))
        count: Int = PyArray_ITEMSIZE(column)
        for axis in range(axes, 1, -1):
            if PyArray_STRIDE(column, axis) != count:
                return False
            count *= PyArray_DIM(column, axis)
        if axes > 0 and PyArray_STRIDE(column, 1) != count:
            # Narrow columns are fields of records: those of a row of lanes are apart.
            for place in range(PyArray_DIM(column, 1)):
                hr_move(to + place * PyArray_STRIDE(column, 1), source + place * count, count)
            return True
        if axes > 0:
            count *= PyArray_DIM(column, 1)
        if count < STREAMED_ROW or count % 16 != 0 or count * step_rows < STREAMED_STEP:
            hr_move(to, source, count)
        else:
            hr_stream(to, source, count)
        return True
    else:
        return False
