"""The rows of pages as ranges: pages that are full and lie side by side are one."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.jit import Int, kernel
from headrace.store.layout import LANES, USED

_BLOCK = 1024


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
    rows = np.empty(_count_flagged(steps, ranges, np.uint32(flag)), np.int64)
    if len(rows):
        _find_flagged(steps, ranges, np.uint32(flag), rows)
    return rows


@kernel
def _count_flagged(steps: NDArray[np.uint32], ranges: NDArray[np.int64], flag: Int) -> Int:
    count = 0
    for number in range(ranges.shape[0]):
        count += _count_in(steps[ranges[number, 0] : ranges[number, 1]], flag)
    return count


@kernel
def _count_in(words: NDArray[np.uint32], flag: Int) -> Int:
    # Of a slice, whose places are known to be none before the first: so the loop takes many words at a time.
    count = 0
    for place in range(words.shape[0]):
        count += (words[place] & flag) != 0
    return count


@kernel
def _find_flagged(
    steps: NDArray[np.uint32], ranges: NDArray[np.int64], flag: Int, rows: NDArray[np.int64]
) -> None:
    count = 0
    for number in range(ranges.shape[0]):
        for begin in range(ranges[number, 0], ranges[number, 1], _BLOCK):
            words = steps[begin : min(begin + _BLOCK, ranges[number, 1])]
            # Flags are rare: most blocks have none.
            if _count_in(words, flag) == 0:
                continue
            for place in range(words.shape[0]):
                if words[place] & flag:
                    rows[count] = begin + place
                    count += 1
