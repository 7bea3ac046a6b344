"""Writing values into columns: checked by the table of casts, quick where nothing is to be cast.

A row becomes part of the store only when it is committed, so values are checked and written column by column: what a
refused step has left behind is overwritten by the next.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.spec import ArraySpec, check_array

Put = Callable[[int, Any], None]
"""Writes one value, or one for each lane, at a row; raises SpecError and leaves a row that is not committed."""

_PYTHONS_OWN = (np.dtype(np.float64), np.dtype(np.complex128))


def put_one(column: NDArray[Any], spec: ArraySpec, path: str) -> Put:
    """A function that writes one value of a column at a row."""
    return _put_scalar(column, spec, path) if spec.shape == () else _put_array(column, spec, path)


def _put_scalar(column: NDArray[Any], spec: ArraySpec, path: str) -> Put:
    dtype = column.dtype
    native = dtype.type
    python = {"b": bool, "i": int, "u": int, "f": float, "c": complex}[dtype.kind]
    # What a Python number may be without a look at the table of casts: nothing narrower than itself is given a float,
    # and NumPy itself refuses an integer that does not fit.
    trusted = python if dtype in _PYTHONS_OWN or dtype.kind in "biu" else native
    half, negative_half = (
        (float(np.finfo(dtype).max), float(np.finfo(dtype).min)) if dtype.kind == "f" else (0.0, 0.0)
    )
    narrow = dtype.kind == "f" and dtype.itemsize < 8

    def put(row: int, value: Any) -> None:
        kind = type(value)
        if kind is native or kind is trusted or (narrow and kind is float and negative_half <= value <= half):
            try:
                column[row] = value
                return
            except OverflowError:
                pass  # The table of casts says it better.
        column[row] = check_array(value, spec, path)

    return put


def _put_array(column: NDArray[Any], spec: ArraySpec, path: str) -> Put:
    dtype, shape = column.dtype, spec.shape

    def put(row: int, value: Any) -> None:
        if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
            column[row] = value
        else:
            column[row] = check_array(value, spec, path)

    return put


def put_lanes(column: NDArray[Any], spec: ArraySpec, path: str, lanes: int) -> Put:
    """A function that writes one value for each lane, `dtype[lanes, ...]`, from a row on."""
    dtype, shape, leading = column.dtype, (lanes, *spec.shape), (lanes,)

    def put(row: int, value: Any) -> None:
        if type(value) is np.ndarray and value.dtype is dtype and value.shape == shape:
            column[row : row + lanes] = value
        else:
            column[row : row + lanes] = check_array(value, spec, path, leading)

    return put
