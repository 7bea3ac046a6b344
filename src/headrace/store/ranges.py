"""The rows of pages as ranges: pages that are full and lie side by side are one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import LANES, USED

# Flags are looked for in so many rows at a time, in the processor's cache.
_ROWS_AT_ONCE = 1 << 16


def used_ranges(pages: NDArray[np.int64], words: NDArray[np.int64], page_rows: int) -> NDArray[np.int64]:
    """int64[ranges, 2]: where the committed rows of these pages begin and end.

    Args:
        pages: int64[n], rising.
        words: int64[n, PAGE_WORDS], theirs.

    >>> words = np.zeros((3, 8), np.int64)
    >>> words[:, LANES], words[:, USED] = 1, [4, 4, 2]
    >>> used_ranges(np.array([0, 1, 3]), words, 4).tolist()
    [[0, 8], [12, 14]]
    """
    starts = pages * page_rows
    stops = starts + words[:, USED] * words[:, LANES]
    filled = stops > starts
    starts, stops = starts[filled], stops[filled]
    begins = np.ones(len(starts), np.bool_)
    begins[1:] = starts[1:] != stops[:-1]
    ends = np.ones(len(starts), np.bool_)
    ends[:-1] = begins[1:]
    return np.stack([starts[begins], stops[ends]], axis=1)


def flagged_rows(steps: NDArray[np.uint32], ranges: NDArray[np.int64], flag: int) -> NDArray[np.int64]:
    """The rows in these ranges whose word has `flag`, rising."""
    found = [np.flatnonzero(steps[start:stop] & np.uint32(flag)) + start for start, stop in _pieces(ranges)]
    return np.concatenate(found) if found else np.zeros(0, np.int64)


def _pieces(ranges: NDArray[np.int64]) -> Iterator[tuple[int, int]]:
    for start, stop in ranges.tolist():
        for begin in range(start, stop, _ROWS_AT_ONCE):
            yield begin, min(stop, begin + _ROWS_AT_ONCE)
