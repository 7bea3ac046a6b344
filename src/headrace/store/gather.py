"""Copying rows out of columns, into buffers that are used again."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.store.copying import stream_rows, take_rows

# Smaller arrays come from the allocator's own lists, without page faults.
_POOLED_BYTES = 128 * 1024
STREAMED = 1 << 23
"""Bytes of a batch from which on it is copied past the caches: one that is not there any more when it is read."""
# How many bytes go past the caches at a time.
_WHOLE = 16
_STREAMED_ROW = 1 << 10
"""Bytes of a row from which on that is quicker; of shorter ones each is a wait (bench/changes.md has the figures)."""
_KEPT_BUFFERS = 8
_KEPT_SIZES = 16


class Pool:
    """Output buffers for batches. A buffer is used again once the last array over it is garbage, never before.

    A fresh array of some megabytes costs page faults on every batch. A buffer is free if its reference count says
    so: every array made from it, a torch tensor over it included, refers to it.

    >>> pool = Pool()
    >>> pool.empty((256, 1024), np.dtype(np.float32)).shape
    (256, 1024)
    """

    def __init__(self) -> None:
        self._buffers: dict[int, list[NDArray[np.uint8]]] = {}
        self._lock = threading.Lock()
        # Result of sys.getrefcount for a buffer that only this pool refers to; measured, because it depends on the
        # interpreter.
        self._unused = self._references([np.empty(1, np.uint8)], 0)

    def empty(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
        """Returns an array of arbitrary content."""
        nbytes = dtype.itemsize
        for size in shape:
            nbytes *= size
        if nbytes < _POOLED_BYTES:
            return np.empty(shape, dtype)
        return np.ndarray(shape, dtype, buffer=self._free_buffer(nbytes))

    def buffer(self, nbytes: int) -> NDArray[np.uint8]:
        """Returns a buffer of arbitrary content."""
        if nbytes < _POOLED_BYTES:
            return np.empty(nbytes, np.uint8)
        return np.ndarray(nbytes, np.uint8, self._free_buffer(nbytes))

    def clear(self) -> None:
        """Forgets all buffers; those over which an array is alive go with it."""
        with self._lock:
            self._buffers.clear()

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
                if self._is_unused(buffers, place):
                    return buffers[place]
            fresh = self._new(nbytes)
            if not self._may_keep(len(buffers) + 1):
                # A caller keeps many batches: the pool forgets a buffer, which lives on with its batch.
                buffers.pop(0)
            buffers.append(fresh)
            return fresh

    def _new(self, nbytes: int) -> NDArray[np.uint8]:
        """Returns a new buffer."""
        return np.empty(nbytes, np.uint8)

    def _may_keep(self, count: int) -> bool:
        """Whether the pool may keep so many buffers of one size."""
        return count <= _KEPT_BUFFERS

    def _is_unused(self, buffers: list[NDArray[np.uint8]], place: int) -> bool:
        """Whether no array over a buffer is alive."""
        return self._references(buffers, place) == self._unused

    @staticmethod
    def _references(buffers: list[NDArray[np.uint8]], place: int) -> int:
        return sys.getrefcount(buffers[place])


def gather(column: NDArray[Any], sets: Sequence[NDArray[np.int64]], pool: Pool) -> list[NDArray[Any]]:
    """Copies of sets of rows, `dtype[*rows.shape, ...]` each, in arrays of their own.

    Rows from the window function are always in range; a number outside gives the nearest row.
    """
    nbytes = _row_nbytes(column)
    if nbytes < _STREAMED_ROW or nbytes % _WHOLE or nbytes * sum([rows.size for rows in sets]) < STREAMED:
        return [_take(column, rows, pool) for rows in sets]
    return _stream(column, sets, pool)


def gather_into(column: NDArray[Any], rows: NDArray[np.int64], out: NDArray[Any]) -> None:
    """Copies rows into an array, a large one past the caches.

    Args:
        column: contiguous, not empty.
        rows: int64[...], in range.
        out: `dtype[*rows.shape, ...]`, contiguous; written.
    """
    nbytes, rows = column.strides[0], rows.reshape(-1)
    if nbytes < _STREAMED_ROW or nbytes % _WHOLE or out.nbytes < STREAMED:
        take_rows(_bytes_of(column), nbytes, rows, _bytes_of(out))
    else:
        stream_rows(_bytes_of(column), nbytes, rows, nbytes * np.arange(rows.size), _bytes_of(out))


def _take(column: NDArray[Any], rows: NDArray[np.int64], pool: Pool) -> NDArray[Any]:
    out = pool.empty(rows.shape + column.shape[1:], column.dtype)
    if out.size:
        take_rows(_bytes_of(column), column.strides[0], rows.reshape(-1), _bytes_of(out))
    return out


def _bytes_of(array: NDArray[Any]) -> NDArray[np.uint8]:
    return array.reshape(-1).view(np.uint8)


def _row_nbytes(column: NDArray[Any]) -> int:
    # A column is contiguous, so its first stride is the size of a row; but one of no bytes has strides all the same.
    return column.strides[0] if column.size else 0


def _stream(column: NDArray[Any], sets: Sequence[NDArray[np.int64]], pool: Pool) -> list[NDArray[Any]]:
    """Copies past the caches, the sets side by side: frames that several views of an item show are read once."""
    nbytes = column.strides[0]
    items = max(1, gcd(*[len(rows) for rows in sets]))
    begins = nbytes * np.cumsum([0, *[rows.size for rows in sets]])
    places = [begin + nbytes * np.arange(rows.size) for begin, rows in zip(begins, sets, strict=False)]
    out = pool.buffer(int(begins[-1]))
    stream_rows(
        _bytes_of(column),
        nbytes,
        np.concatenate([rows.reshape(items, -1) for rows in sets], 1).reshape(-1),
        np.concatenate([each.reshape(items, -1) for each in places], 1).reshape(-1),
        out,
    )
    return [
        np.ndarray(rows.shape + column.shape[1:], column.dtype, out, begin)
        for rows, begin in zip(sets, begins.tolist(), strict=False)
    ]
