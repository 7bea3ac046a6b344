"""Copying rows out of columns, into buffers that are used again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.intrinsics import WHOLE, array_at, prefetch, settle, stream
from headrace.store.jit import Int, kernel
from headrace.store.layout import FINAL, LANES, LINKED, NEXT, USED, StoreArrays
from headrace.store.memory import open_store
from headrace.store.seams import row_after
from headrace.store.window import follow, page_of

# Smaller arrays come from the allocator's own lists, without page faults.
_POOLED_BYTES = 128 * 1024
STREAMED = 1 << 22
"""Bytes of a batch from which on it is copied past the caches: about what one core can count on having there."""
_STREAMED_ROW = 1 << 10
"""Bytes of a row from which on that is quicker; of shorter ones each is a wait (bench/README.md has the figures)."""
_KEPT_BUFFERS = 8
_KEPT_SIZES = 16


class Pool:
    """Output buffers for batches. A buffer is used again once the last array over it is garbage, never before.

    A fresh array of some megabytes costs page faults on every batch. Whether a buffer is free is told by its reference
    count: every array made from it, a torch tensor over it included, refers to it.

    >>> pool = Pool()
    >>> pool.empty((256, 1024), np.dtype(np.float32)).shape
    (256, 1024)
    """

    def __init__(self) -> None:
        self._buffers: dict[int, list[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()
        # What sys.getrefcount tells of a buffer that only this pool has; measured, for it is the interpreter's affair.
        self._unused = self._references([np.empty(1, np.uint8)], 0)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """An array with arbitrary content."""
        nbytes = dtype.itemsize
        for size in shape:
            nbytes *= size
        if nbytes < _POOLED_BYTES:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self._free_buffer(nbytes))

    def stretch(self, nbytes: int) -> NDArray[np.uint8]:
        """Returns a buffer of arbitrary content."""
        if nbytes < _POOLED_BYTES:
            return np.empty(nbytes, np.uint8)
        return np.ndarray(nbytes, np.uint8, self._free_buffer(nbytes))

    def _free_buffer(self, nbytes: int) -> NDArray[np.uint8]:
        # Batches whose longest item differs have ever new sizes; an eighth more lets them share buffers.
        step = 1 << max(0, nbytes.bit_length() - 4)
        nbytes = -(-nbytes // step) * step
        with self._lock:
            # Sizes in the order of their last use; the pool forgets the one that was not asked for the longest.
            buffers = self._buffers[nbytes] = self._buffers.pop(nbytes, [])
            if len(self._buffers) > _KEPT_SIZES:
                del self._buffers[next(iter(self._buffers))]
            for place in range(len(buffers)):
                if self._references(buffers, place) == self._unused:
                    return buffers[place]
            fresh = np.empty(nbytes, np.uint8)
            if len(buffers) == _KEPT_BUFFERS:
                # Somebody keeps many batches: let the pool forget one, it lives on with them.
                buffers.pop(0)
            buffers.append(fresh)
            return fresh

    @staticmethod
    def _references(buffers: list[NDArray[np.uint8]], place: int) -> int:
        return sys.getrefcount(buffers[place])


def gather(column: NDArray[Any], sets: Sequence[NDArray[np.int64]], pool: Pool) -> list[NDArray[Any]]:
    """Copies of sets of rows, `dtype[*rows.shape, ...]` each, in arrays of their own.

    Rows from the window function are always in range; what is not is taken from the nearest.
    """
    nbytes = _row_nbytes(column)
    if nbytes < _STREAMED_ROW or nbytes % WHOLE or nbytes * sum([rows.size for rows in sets]) < STREAMED:
        return [_take(column, rows, pool) for rows in sets]
    copies = [pool.empty(rows.shape + column.shape[1:], column.dtype) for rows in sets]
    _stream_sets(column, sets, copies)
    return copies


def _take(column: NDArray[Any], rows: NDArray[np.int64], pool: Pool) -> NDArray[Any]:
    """`mode="clip"` lets NumPy copy rows straight into place, at about the speed of memory; "raise" has a buffer."""
    if rows.size * _row_nbytes(column) < _POOLED_BYTES:
        return column.take(rows, 0, None, "clip")
    out = pool.empty(rows.shape + column.shape[1:], column.dtype)
    return column.take(rows, 0, out, "clip")


def _row_nbytes(column: NDArray[Any]) -> int:
    # A column is contiguous, so its first stride is the size of a row; but one of no bytes has strides all the same.
    return column.strides[0] if column.size else 0


def _stream_sets(
    column: NDArray[Any], sets: Sequence[NDArray[np.int64]], copies: Sequence[NDArray[Any]]
) -> None:
    """Copy past the caches, the sets side by side: frames that several views of an item show are read once."""
    nbytes = column.strides[0]
    items = max(1, gcd(*[len(rows) for rows in sets]))
    places = [_address(copy) + nbytes * np.arange(rows.size) for rows, copy in zip(sets, copies, strict=True)]
    stream_rows(
        column.view(np.uint8).reshape(len(column), nbytes),
        np.concatenate([rows.reshape(items, -1) for rows in sets], 1).reshape(-1),
        np.concatenate([each.reshape(items, -1) for each in places], 1).reshape(-1),
    )


def _address(array: NDArray[Any]) -> int:
    found: int = array.__array_interface__["data"][0]
    return found


@kernel
def stream_rows(column: NDArray[np.uint8], rows: NDArray[np.int64], places: NDArray[np.int64]) -> None:
    """Copy rows to where `places` says, past the caches.

    Args:
        column: uint8[rows, bytes].
        rows: int64[M].
        places: int64[M]: an address for each.
    """
    for index in range(rows.shape[0]):
        row = min(max(rows[index], 0), column.shape[0] - 1)
        stream(array_at(places[index], column.shape[1], np.uint8), column[row])
    settle()


@kernel
def window_rows_in(
    memory: NDArray[np.uint8],
    places: NDArray[np.int64],
    page_rows: Int,
    starts: NDArray[np.int64],
    counts: NDArray[np.uint32],
    rows: NDArray[np.int64],
) -> None:
    """`window_rows`, quick to call: the arrays are carved from their memory here."""
    window_rows(open_store(memory, places, page_rows), starts, counts, rows)


@kernel
def window_rows(
    store: StoreArrays, starts: NDArray[np.int64], counts: NDArray[np.uint32], rows: NDArray[np.int64]
) -> None:
    """The rows of windows: `counts[i]` rows from `starts[i]` on, then -1. What goes past the end of an episode goes on
    in the next (`seams.row_after`); only windows of rules that say so do.

    Args:
        rows: int64[B, L], written.
    """
    pages = store.pages
    for item in range(starts.shape[0]):
        row = starts[item]
        page = row // store.page_rows
        for place in range(rows.shape[1]):
            if place >= counts[item]:
                rows[item, place] = -1
                continue
            rows[item, place] = row
            if place + 1 >= counts[item]:
                continue
            if np.int64(store.steps[row]) & (LINKED | FINAL):
                row = row_after(store, row)
                page = row // store.page_rows
                continue
            in_page = row - page * store.page_rows + pages[page, LANES]
            if in_page >= pages[page, USED] * pages[page, LANES]:
                in_page -= pages[page, USED] * pages[page, LANES]
                page = pages[page, NEXT]
            row = page * store.page_rows + in_page


@kernel
def rows_of_one_length(
    store: StoreArrays, starts: NDArray[np.int64], length: Int, rows: NDArray[np.int64]
) -> None:
    """The rows of windows that all have `length` rows, each in one episode.

    Within a window only the step to its last row can lead to a final row that stands beside the lane.

    Args:
        rows: int64[B * length], written.
    """
    if length == 1:
        for item in range(starts.shape[0]):
            rows[item] = starts[item]
        return
    pages = store.pages
    for item in range(starts.shape[0]):
        row = starts[item]
        place, stop = item * length, (item + 1) * length
        rows[place] = row
        place += 1
        page = page_of(store, row)
        lanes = pages[page, LANES]
        end = page * store.page_rows + pages[page, USED] * lanes
        while place < stop - 1:
            row += lanes
            if row >= end:
                row -= pages[page, USED] * lanes + page * store.page_rows
                page = pages[page, NEXT]
                row += page * store.page_rows
                end = page * store.page_rows + pages[page, USED] * lanes
            rows[place] = row
            place += 1
        prefetch(store.steps, row)
    for last in range(length - 1, rows.shape[0], length):
        rows[last] = follow(store, rows[last - 1], 1)
