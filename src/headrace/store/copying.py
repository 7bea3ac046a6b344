"""Copying: fields out of records (`store.records`) and into them, and whole arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import AHEAD, WHOLE, prefetch, room, settle, stream
from headrace.store.jit import Bool, Int, kernel, kernel_apart, opening, unsigned
from headrace.store.records import COUNT, OFFSET, ROWS, TO, UNIT, WIDTH

_ROOM = 8192
"""Bytes in which records are held while their fields are copied out of them: a quarter of the nearest cache."""


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
            how many there are, TO which byte of `out` (a multiple of 8). Fields of the same rows stand side by side.
        out: uint8[...], written.
    """
    first = 0
    while first < table.shape[0]:
        stop = first + 1
        while stop < table.shape[0] and _same_rows(table[first], table[stop]):
            stop += 1
        some = rows[table[first, ROWS] : table[first, ROWS] + table[first, COUNT]]
        begin, end, width = _span(table[first:stop], nbytes)
        if stop - first > 1 and end - begin <= min(2 * width, _ROOM // 16):
            _copy_together(records, nbytes, some, table[first:stop], begin, end, out)
        else:
            for field in range(first, stop):
                unit, offset = table[field, UNIT], table[field, OFFSET]
                target = out[table[field, TO] :]
                _take(records, nbytes, some, 0, some.shape[0], offset, table[field, WIDTH], unit, target)
        first = stop


@kernel
def _same_rows(field: NDArray[np.int64], other: NDArray[np.int64]) -> Bool:
    return field[ROWS] == other[ROWS] and field[COUNT] == other[COUNT]


@kernel
def _span(table: NDArray[np.int64], nbytes: Int) -> tuple[Int, Int, Int]:
    """The part of a record that holds all fields, in whole words of it, and how many bytes of it are theirs."""
    begin, end, width = nbytes, 0, 0
    for field in range(table.shape[0]):
        begin = min(begin, table[field, OFFSET])
        end = max(end, table[field, OFFSET] + table[field, WIDTH])
        width += table[field, WIDTH]
    word = _word(nbytes)
    return begin // word * word, -(-end // word) * word, width


@kernel
def _word(nbytes: Int) -> Int:
    """The widest word that so many bytes are a whole number of."""
    return min(nbytes & -nbytes, 8)


@kernel_apart
def _copy_together(
    records: NDArray[np.uint8],
    nbytes: Int,
    rows: NDArray[np.int64],
    table: NDArray[np.int64],
    begin: Int,
    end: Int,
    out: NDArray[np.uint8],
) -> None:
    """Copy fields of the same rows by way of a room in the cache, so that each record is looked at once.

    Records a power of two apart share few places of the cache: by the time of the next field they were gone again.
    """
    width, unit = end - begin, _word(nbytes)
    held = room(_ROOM)
    step = _ROOM // width
    for first in range(0, rows.shape[0], step):
        stop = min(first + step, rows.shape[0])
        _take(records, nbytes, rows, first, stop, begin, width, unit, held)
        for field in range(table.shape[0]):
            to = table[field, TO] + first * table[field, WIDTH]
            _part(held, width, stop - first, table[field], table[field, OFFSET] - begin, out[to:])


@kernel
def _take(
    records: NDArray[np.uint8],
    nbytes: Int,
    rows: NDArray[np.int64],
    first: Int,
    stop: Int,
    begin: Int,
    width: Int,
    unit: Int,
    out: NDArray[np.uint8],
) -> None:
    """`width` bytes, from `begin` on, of each of the records `rows[first:stop]`, side by side, in words of `unit`."""
    shape = records.shape[0] // nbytes, nbytes // unit
    place = begin // unit
    if unit == 8:
        source, target = words(records, 8).view(np.int64), words(out, 8).view(np.int64)
        _take_words(source.reshape(shape)[:, place:], rows, first, stop, width // 8, target)
    elif unit == 4:
        source, target = words(records, 4).view(np.int32), words(out, 4).view(np.int32)
        _take_words(source.reshape(shape)[:, place:], rows, first, stop, width // 4, target)
    elif unit == 2:
        source, target = words(records, 2).view(np.int16), words(out, 2).view(np.int16)
        _take_words(source.reshape(shape)[:, place:], rows, first, stop, width // 2, target)
    else:
        _take_words(records.reshape(shape)[:, place:], rows, first, stop, width, out)


@kernel_apart
def _take_words(
    source: NDArray[Any], rows: NDArray[np.int64], first: Int, stop: Int, width: Int, out: NDArray[Any]
) -> None:
    """The first words of some rows of `source`."""
    if first == stop:
        return
    last = unsigned(rows.shape[0] - 1)
    # Many rows are taken in turns with the copying of their fields: with more on their way memory is busy then too.
    ahead = AHEAD if rows.shape[0] < 1024 else 2 * AHEAD
    if first == 0:
        for index in range(min(ahead, rows.shape[0])):
            prefetch(source, rows[unsigned(index)])
    to = 0
    if width == 1:
        for index in range(first, stop):
            prefetch(source, rows[min(unsigned(index + ahead), last)])
            out[unsigned(to)] = source[unsigned(max(rows[unsigned(index)], 0)), 0]
            to += 1
    elif width == 2:
        for index in range(first, stop):
            prefetch(source, rows[min(unsigned(index + ahead), last)])
            row = unsigned(max(rows[unsigned(index)], 0))
            out[unsigned(to)], out[unsigned(to + 1)] = source[row, 0], source[row, 1]
            to += 2
    elif width == 4:
        for index in range(first, stop):
            prefetch(source, rows[min(unsigned(index + ahead), last)])
            row = unsigned(max(rows[unsigned(index)], 0))
            out[unsigned(to)], out[unsigned(to + 1)] = source[row, 0], source[row, 1]
            out[unsigned(to + 2)], out[unsigned(to + 3)] = source[row, 2], source[row, 3]
            to += 4
    else:
        for index in range(first, stop):
            prefetch(source, rows[min(unsigned(index + ahead), last)])
            row = unsigned(max(rows[unsigned(index)], 0))
            for word in range(width):
                out[unsigned(to + word)] = source[row, unsigned(word)]
            to += width


@kernel
def _part(
    held: NDArray[np.uint8],
    nbytes: Int,
    count: Int,
    field: NDArray[np.int64],
    offset: Int,
    out: NDArray[np.uint8],
) -> None:
    """One field of `count` parts of records that stand side by side, `nbytes` each."""
    unit, width = field[UNIT], field[WIDTH]
    if unit == 8:
        source, target = words(held, 8).view(np.int64), words(out, 8).view(np.int64)
        _part_words(source, offset // 8, nbytes // 8, count, width // 8, target)
    elif unit == 4:
        source, target = words(held, 4).view(np.int32), words(out, 4).view(np.int32)
        _part_words(source, offset // 4, nbytes // 4, count, width // 4, target)
    elif unit == 2:
        source, target = words(held, 2).view(np.int16), words(out, 2).view(np.int16)
        _part_words(source, offset // 2, nbytes // 2, count, width // 2, target)
    else:
        _part_words(held, offset, nbytes, count, width, out)


@kernel_apart
def _part_words(
    source: NDArray[Any], begin: Int, step: Int, count: Int, width: Int, out: NDArray[Any]
) -> None:
    if width == 1:
        for index in range(count):
            out[unsigned(index)] = source[unsigned(begin + index * step)]
        return
    if width == 2:
        for index in range(count):
            out[unsigned(2 * index)] = source[unsigned(begin + index * step)]
            out[unsigned(2 * index + 1)] = source[unsigned(begin + index * step + 1)]
        return
    for index in range(count):
        for word in range(width):
            out[unsigned(index * width + word)] = source[unsigned(begin + index * step + word)]


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


def copy_past_caches(target: NDArray[Any], source: NDArray[Any]) -> None:
    """Copy a contiguous array into another of its shape and dtype, past the caches: for what nobody reads soon.

    Raises:
        ValueError: the arrays are others.
    """
    if (target.shape, target.dtype) != (source.shape, source.dtype):
        raise ValueError(
            f"copy_past_caches: expected {target.dtype}{list(target.shape)}, as the target, "
            f"got {source.dtype}{list(source.shape)}"
        )
    if not (target.flags.c_contiguous and source.flags.c_contiguous):
        raise ValueError("copy_past_caches: expected contiguous arrays, got others; use np.copyto")
    _copy_bytes(target.reshape(-1).view(np.uint8), source.reshape(-1).view(np.uint8))


@kernel
def _copy_bytes(target: NDArray[np.uint8], source: NDArray[np.uint8]) -> None:
    whole = source.shape[0] // WHOLE * WHOLE
    stream(target[:whole], source[:whole])
    for place in range(whole, source.shape[0]):
        target[place] = source[place]
    settle()
