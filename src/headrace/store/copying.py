"""Copying: fields out of records (`store.records`) and into them, and whole rows past the caches."""

from __future__ import annotations

import cython

if not cython.compiled:
    from headrace.kernels.handoff import ask, leave, take
    from headrace.kernels.hints import move, place, prefetch, store_fence, stream, take_fields
    from headrace.kernels.kinds import Bool, Bytes, GivenBytes, GivenLongs, Int, Longs, LongTable
    from headrace.store.records import COUNT, OFFSET, ROWS, TO, WIDTH

    # Bytes that are copied with the interpreter lock held: a few microseconds, less than a wait for it.
    SHORT = 1 << 16
    # Rows whose places are looked up ahead, the pages of a row that are, and the bytes of a page.
    ROWS_AHEAD, PAGES_AHEAD, PAGE = 2, 8, 1 << 12


def copy(records: Bytes, nbytes: Int, rows: Longs, table: LongTable, out: Bytes) -> None:
    """Calls `copy_fields`, for callers in Python."""
    with cython.nogil:
        leave()
        copy_fields(records, nbytes, rows, table, out)
        ask()
    take()


def copy_fields(records: Bytes, nbytes: Int, rows: Longs, table: LongTable, out: Bytes) -> None:
    """Copies fields of some records, each field into a buffer of its own.

    Args:
        records: uint8[...], the records as bytes.
        nbytes: of one record.
        rows: int64[M]; a negative one stands for a padded row, any record is copied for it.
        table: int64[F, 6]: OFFSET and WIDTH in the record, ROWS which of `rows` come first and COUNT how many there
            are, TO the byte of `out`. Fields of the same rows stand side by side.
        out: uint8[...], written.
    """
    first: Int = 0
    while first < table.shape[0]:
        stop: Int = first + 1
        while stop < table.shape[0] and _same_rows(table, first, stop):
            stop += 1
        if table[first, COUNT]:
            take_fields(records, nbytes, rows, table, first, stop, out)
        first = stop


def _same_rows(table: LongTable, field: Int, other: Int) -> Bool:
    same: Bool = table[field, ROWS] == table[other, ROWS] and table[field, COUNT] == table[other, COUNT]
    return same


def place_fields(values: Bytes, table: LongTable, lanes: Int, records: Bytes, nbytes: Int, row: Int) -> None:
    """Copies fields into the records of a vector step: the inverse of `copy_fields`.

    Args:
        values: uint8[...], of each field a buffer with a value for each lane.
        table: int64[F, 6]: OFFSET and WIDTH in the record, TO which byte of `values`.
        records: uint8[...], written.
        nbytes: of one record.
        row: of the first lane.
    """
    for field in range(table.shape[0]):
        offset: Int = table[field, OFFSET]
        place(values, table[field, TO], table[field, WIDTH], lanes, records, row * nbytes + offset, nbytes)


def take_rows(column: GivenBytes, nbytes: Int, rows: GivenLongs, out: Bytes) -> None:
    """Copies rows side by side; a number outside the column gives the nearest row.

    Args:
        column: uint8[rows * nbytes], not empty.
        nbytes: of a row.
        rows: int64[M].
        out: uint8[M * nbytes], written.
    """
    if out.shape[0] <= SHORT:
        _take_rows(column, nbytes, rows, out)
        return
    with cython.nogil:
        leave()
        _take_rows(column, nbytes, rows, out)
        ask()
    take()


def _take_rows(column: GivenBytes, nbytes: Int, rows: GivenLongs, out: Bytes) -> None:
    last: Int = column.shape[0] // nbytes - 1
    for index in range(rows.shape[0]):
        row = min(max(rows[index], 0), last)
        move(out, index * nbytes, column, row * nbytes, nbytes)


def stream_rows(column: GivenBytes, nbytes: Int, rows: GivenLongs, places: GivenLongs, out: Bytes) -> None:
    """Copies rows past the caches; a number outside the column gives the nearest row.

    Args:
        column: uint8[rows * nbytes], not empty.
        nbytes: of a row, a multiple of 16.
        rows: int64[M].
        places: int64[M], the first byte of each copy in `out`.
        out: uint8[...], written.
    """
    last: Int = column.shape[0] // nbytes - 1
    with cython.nogil:
        leave()
        for index in range(rows.shape[0]):
            if index + ROWS_AHEAD < rows.shape[0]:
                _find_pages(out, places[index + ROWS_AHEAD], nbytes)
            row = min(max(rows[index], 0), last)
            stream(out, places[index], column, row * nbytes, nbytes)
        store_fence()
        ask()
    take()


def _find_pages(out: Bytes, begin: Int, nbytes: Int) -> None:
    """Makes the processor look up where a row will lie: memory that processes share has no large pages.

    A store past the caches would wait for each page of 4 KiB (0.7 ms instead of 1.1 for a batch of 14 MB).
    """
    for page in range(min(PAGES_AHEAD, (nbytes + PAGE - 1) // PAGE)):
        prefetch(out, begin + page * PAGE)
