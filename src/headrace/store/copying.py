"""Copying fields out of records (`store.records`), one loop a field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, kernel, opening, prefetch
from headrace.store.records import COUNT, OFFSET, ROWS, TO, UNIT, WIDTH


@opening
def words(stretch: NDArray[np.uint8], unit: Int) -> NDArray[np.uint8]:
    """As much of a stretch of bytes as whole words of `unit` bytes fill."""
    return stretch[: stretch.shape[0] // unit * unit]


@kernel
def copy_fields(
    records: NDArray[np.uint8],
    nbytes: Int,
    rows: NDArray[np.int64],
    table: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Copy fields of some records, each field into a stretch of its own.

    Args:
        records: uint8[...], the records as bytes.
        nbytes: of one record.
        rows: int64[M]; a negative one stands for an invented row, any record is copied for it.
        table: int64[F, 6]: OFFSET and WIDTH in the record, UNIT of the words, ROWS which of `rows` come first and COUNT
            how many there are, TO which byte of `out` (a multiple of 8).
        out: uint8[...], written.
    """
    for index in range(rows.shape[0]):
        prefetch(records, rows[index] * nbytes)
    for field in range(table.shape[0]):
        unit = table[field, UNIT]
        first, width, to = table[field, OFFSET] // unit, table[field, WIDTH] // unit, table[field, TO] // unit
        some = rows[table[field, ROWS] : table[field, ROWS] + table[field, COUNT]]
        stride = nbytes // unit
        if unit == 8:
            source, target = words(records, 8).view(np.int64), words(out, 8).view(np.int64)
            _copy(source, stride, some, first, width, target, to)
        elif unit == 4:
            source, target = words(records, 4).view(np.int32), words(out, 4).view(np.int32)
            _copy(source, stride, some, first, width, target, to)
        elif unit == 2:
            source, target = words(records, 2).view(np.int16), words(out, 2).view(np.int16)
            _copy(source, stride, some, first, width, target, to)
        else:
            _copy(records, stride, some, first, width, out, to)


@kernel
def _copy(
    source: NDArray[Any],
    stride: Int,
    rows: NDArray[np.int64],
    first: Int,
    width: Int,
    out: NDArray[Any],
    to: Int,
) -> None:
    if width == 1:
        for index in range(rows.shape[0]):
            out[to + index] = source[max(rows[index], 0) * stride + first]
        return
    if width == 2:
        for index in range(rows.shape[0]):
            place = max(rows[index], 0) * stride + first
            out[to + 2 * index] = source[place]
            out[to + 2 * index + 1] = source[place + 1]
        return
    for index in range(rows.shape[0]):
        place = max(rows[index], 0) * stride + first
        target = to + index * width
        for word in range(width):
            out[target + word] = source[place + word]
