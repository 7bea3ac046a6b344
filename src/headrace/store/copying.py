"""Copying fields out of records (`store.records`) and into them, one loop a field."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, kernel, kernel_apart, opening, prefetch, unsigned
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
        values = records.shape[0] // nbytes, nbytes // unit
        shape, stop = (some.shape[0], width), to + some.shape[0] * width
        if unit == 8:
            source, target = words(records, 8).view(np.int64), words(out, 8).view(np.int64)
            _copy(source.reshape(values)[:, first:], some, target[to:stop].reshape(shape))
        elif unit == 4:
            source, target = words(records, 4).view(np.int32), words(out, 4).view(np.int32)
            _copy(source.reshape(values)[:, first:], some, target[to:stop].reshape(shape))
        elif unit == 2:
            source, target = words(records, 2).view(np.int16), words(out, 2).view(np.int16)
            _copy(source.reshape(values)[:, first:], some, target[to:stop].reshape(shape))
        else:
            _copy(records.reshape(values)[:, first:], some, out[to:stop].reshape(shape))


@kernel_apart
def _copy(source: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
    """The first words of some rows of `source`, as many as a row of `out` has."""
    width = out.shape[1]
    if width == 1:
        for index in range(rows.shape[0]):
            out[index, 0] = source[unsigned(max(rows[index], 0)), 0]
        return
    if width == 2:
        for index in range(rows.shape[0]):
            row = unsigned(max(rows[index], 0))
            out[index, 0] = source[row, 0]
            out[index, 1] = source[row, 1]
        return
    for index in range(rows.shape[0]):
        row = unsigned(max(rows[index], 0))
        for word in range(width):
            out[index, word] = source[row, word]


@kernel_apart
def place_fields(
    values: NDArray[np.uint8],
    table: NDArray[np.int64],
    lanes: Int,
    records: NDArray[np.uint8],
    nbytes: Int,
    row: Int,
) -> None:
    """Copy fields into the records of a vector step: the way back of `copy_fields`.

    Args:
        values: uint8[...], of each field a stretch with a value for each lane.
        table: int64[F, 6]: OFFSET and WIDTH in the record, UNIT of the words, TO which byte of `values` (a multiple of
            8).
        records: uint8[...], written.
        nbytes: of one record.
        row: of the first lane.
    """
    for field in range(table.shape[0]):
        unit = table[field, UNIT]
        if unit == 8:
            target = words(records, 8).view(np.int64)
            _place(words(values, 8).view(np.int64), table, field, 8, lanes, target, nbytes, row)
        elif unit == 4:
            target = words(records, 4).view(np.int32)
            _place(words(values, 4).view(np.int32), table, field, 4, lanes, target, nbytes, row)
        elif unit == 2:
            target = words(records, 2).view(np.int16)
            _place(words(values, 2).view(np.int16), table, field, 2, lanes, target, nbytes, row)
        else:
            _place(values, table, field, 1, lanes, records, nbytes, row)


@kernel
def _place(
    values: NDArray[Any],
    table: NDArray[np.int64],
    field: Int,
    unit: Int,
    lanes: Int,
    records: NDArray[Any],
    nbytes: Int,
    row: Int,
) -> None:
    """One field, in words. Its unit is given as a number that the compiler knows: it divides by shifting."""
    width, step = table[field, WIDTH] // unit, nbytes // unit
    start, first = table[field, TO] // unit, (row * nbytes + table[field, OFFSET]) // unit
    if width == 1:
        for lane in range(lanes):
            records[unsigned(first + lane * step)] = values[unsigned(start + lane)]
        return
    for lane in range(lanes):
        for word in range(width):
            records[unsigned(first + lane * step + word)] = values[unsigned(start + lane * width + word)]
