"""The window function for views that only look back from the newest rows of trajectories, with the copies it leads to.

A policy asks for these windows before each step, of a few trajectories: one call that finds and copies takes a fraction
of the time of `window.resolve` and the copies after it.
"""

# Rules: views V6, V7, V14

from __future__ import annotations

from typing import Any

import cython
import numpy as np
from numpy.typing import NDArray

if cython.compiled:
    from cython.cimports.headrace.kernels.hints import hr_move
    from cython.cimports.numpy import PyArray_DATA, PyArray_NBYTES
else:
    from headrace.kernels.handoff import ask, leave, take
    from headrace.kernels.hints import move
    from headrace.kernels.kinds import Bool, GivenLongs, Int
    from headrace.store.copying import SHORT


class LookBack:
    """Copies the rows that lie some rows before the newest ones of their trajectories, side by side.

    Args:
        backs: int64[W], not negative: how many rows to look back.
        axes: those of the rows of one trajectory, `(W,)`; `()` for one row without an axis of its own.
        stride: distance of two successive rows of a trajectory.
        is_post: whether the newest row has no value yet.
        shows_nearest: whether the first value of a trajectory stands for rows before it, once it is known.
        fill: one row of the column; it stands for them otherwise.

    >>> look_back = LookBack(np.array([1, 0]), (2,), 1, is_post=False, shows_nearest=False, fill=np.array(-1))
    >>> look_back.copy(np.arange(10, 20), newest=np.array([4, 9]), ages=np.array([4, 0])).tolist()
    [[13, 14], [-1, 19]]
    """

    def __init__(
        self,
        backs: NDArray[np.int64],
        axes: tuple[int, ...],
        stride: int,
        *,
        is_post: bool,
        shows_nearest: bool,
        fill: NDArray[Any],
    ) -> None:
        self._backs = backs
        self._stride = stride
        self._is_post = is_post
        self._shows_nearest = shows_nearest
        self._fill = np.ascontiguousarray(fill).reshape(fill.shape)
        self._nbytes = fill.nbytes
        self._dtype = fill.dtype
        self._shape = axes + fill.shape

    def copy(self, column: NDArray[Any], newest: GivenLongs, ages: GivenLongs) -> NDArray[Any]:
        """Returns the rows, `[M, ...]` or `[M, W, ...]`, in an array of their own.

        Args:
            column: `[rows, ...]`, contiguous, of the dtype and shape of the fill; may be a ring: a row below 0 counts
                from its end.
            newest: int64[M], the newest rows.
            ages: int64[M], how many rows of each trajectory precede its newest one.
        """
        out = np.empty((newest.shape[0], *self._shape), self._dtype)
        nbytes = _size(out)
        if nbytes == 0:
            return out
        source, fill, to = _bytes_of(column), _bytes_of(self._fill), _bytes_of(out)
        rows: Int = _size(column) // self._nbytes
        if nbytes <= SHORT:
            self._copy(source, rows, newest, ages, fill, to)
            return out
        with cython.nogil:
            leave()
            self._copy(source, rows, newest, ages, fill, to)
            ask()
        take()
        return out

    def _copy(self, source: Any, rows: Int, newest: GivenLongs, ages: GivenLongs, fill: Any, to: Any) -> None:
        nbytes: Int = self._nbytes
        width: Int = self._backs.shape[0]
        place: Int = 0
        for index in range(newest.shape[0]):
            age: Int = ages[index]
            has_nearest: Bool = self._shows_nearest and not (self._is_post and age == 0)
            number: Int = 0
            while number < width:
                back: Int = self._backs[number]
                count: Int = 1
                if back > age and not has_nearest:
                    _move(to, place, fill, 0, nbytes)
                else:
                    row: Int = newest[index] - min(back, age) * self._stride
                    if row < 0:
                        row += rows
                    # Rows that follow each other are one copy: a stack of frames, but for the first of a trajectory.
                    if self._stride == 1 and back <= age:
                        while (
                            number + count < width
                            and self._backs[number + count] == back - count
                            and row + count < rows
                        ):
                            count += 1
                    _move(to, place, source, row * nbytes, count * nbytes)
                number += count
                place += count * nbytes


def _size(array: NDArray[Any]) -> Int:
    if cython.compiled:
        nbytes: Int = PyArray_NBYTES(array)
    else:
        nbytes = array.nbytes
    return nbytes


def _bytes_of(array: NDArray[Any]) -> Any:
    """Returns the memory of a contiguous array."""
    if cython.compiled:
        return cython.cast(cython.p_uchar, PyArray_DATA(array))
    else:
        return array.reshape(-1).view(np.uint8)


def _move(to: Any, place: Int, source: Any, begin: Int, count: Int) -> None:
    if cython.compiled:
        hr_move(to + place, source + begin, count)
    else:
        move(to, place, source, begin, count)
