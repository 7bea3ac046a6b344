"""The rows of pages as ranges: pages that are full and lie side by side are one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, kernel
from headrace.store.layout import LANES, USED

_BLOCK = 1024
# Room for so many rows is there at once; if there are more, they are gone through again.
_FEW = 1 << 14


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
    rows = np.empty(_FEW, np.int64)
    count = _find_flagged(steps, ranges, np.uint32(flag), rows)
    if count > len(rows):
        rows = np.empty(count, np.int64)
        _find_flagged(steps, ranges, np.uint32(flag), rows)
    return rows[:count]


@kernel
def _find_flagged(
    steps: NDArray[np.uint32], ranges: NDArray[np.int64], flag: Int, rows: NDArray[np.int64]
) -> Int:
    """How many there are; `rows` is filled with them as far as it goes."""
    count = 0
    for number in range(ranges.shape[0]):
        for begin in range(ranges[number, 0], ranges[number, 1], _BLOCK):
            words = steps[begin : min(begin + _BLOCK, ranges[number, 1])]
            # Flags are rare: most blocks have none.
            if not _flags_of(words) & flag:
                continue
            for place in range(words.shape[0]):
                if words[place] & flag:
                    if count < rows.shape[0]:
                        rows[count] = begin + place
                    count += 1
    return count


def flags_of_pages(steps: NDArray[np.uint32], words: NDArray[np.int64], page_rows: int) -> NDArray[np.uint32]:
    """uint32[n]: the flags that some committed row of each of the first n pages has; other bits mean nothing.

    Args:
        steps: uint32[rows].
        words: int64[n, PAGE_WORDS], of the pages.
    """
    flags = np.empty(len(words), np.uint32)
    _take_flags(steps, words, page_rows, flags)
    return flags


@kernel
def _take_flags(
    steps: NDArray[np.uint32], words: NDArray[np.int64], page_rows: Int, flags: NDArray[np.uint32]
) -> None:
    for page in range(words.shape[0]):
        begin = page * page_rows
        flags[page] = _flags_of(steps[begin : begin + words[page, USED] * words[page, LANES]])


@kernel
def _flags_of(words: NDArray[np.uint32]) -> Int:
    # Of a slice, whose places are known to be none before the first: so the loop takes many words at a time.
    found: Int = np.uint32(0)
    for place in range(words.shape[0]):
        found |= words[place]
    return found
