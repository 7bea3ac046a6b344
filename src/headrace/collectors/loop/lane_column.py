"""A column that is written at several rows at a time."""

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

if cython.compiled:
    from cython.cimports.libc.string import memcpy, memset
    from cython.cimports.numpy import PyArray_DATA, PyArray_ISCARRAY_RO, PyArray_NBYTES, PyArray_TYPE
else:
    from headrace.kernels.kinds import Bool, Int, Longs


class LaneColumn:
    """A column that is written at several rows at a time, as bytes where nothing is to be cast.

    Args:
        array: dtype[rows, ...], its rows side by side.

    >>> column = LaneColumn(np.zeros(4, np.float32))
    >>> column.put(np.array([3, -1, 0]), 3, np.array([5, 6, 7], np.float32))
    >>> column.array.tolist()
    [7.0, 0.0, 0.0, 5.0]
    """

    def __init__(self, array: NDArray[Any]) -> None:
        self.array = array
        self._number = array.dtype.num
        self._width = array[:1].nbytes

    def put(self, rows: Longs, count: Int, given: NDArray[Any]) -> None:
        """Writes values at rows.

        Args:
            rows: int64[...], of which the first m are used; the value of a row of -1 is left out.
            count: m.
            given: `[m, ...]`.
        """
        if cython.compiled and self._is_written(rows, count, given):
            return
        targets = np.asarray(rows)[:count]
        used = targets >= 0
        self.array[targets[used]] = given[used]

    def _is_written(self, rows: Longs, count: Int, given: NDArray[Any]) -> Bool:
        """Writes values that are bytes of this column; returns whether they were."""
        if cython.compiled:
            if (
                PyArray_TYPE(given) != self._number
                or not PyArray_ISCARRAY_RO(given)
                or PyArray_NBYTES(given) != count * self._width
            ):
                return False
            to = cython.cast(cython.p_uchar, PyArray_DATA(self.array))
            source = cython.cast(cython.p_uchar, PyArray_DATA(given))
            width = self._width
            for place in range(count):
                if rows[place] >= 0:
                    memcpy(to + rows[place] * width, source + place * width, width)
            return True
        else:
            return False

    def clear(self, row: Int) -> None:
        """Writes zeros at a row."""
        if cython.compiled:
            memset(cython.cast(cython.p_uchar, PyArray_DATA(self.array)) + row * self._width, 0, self._width)
        else:
            self.array[row] = 0
