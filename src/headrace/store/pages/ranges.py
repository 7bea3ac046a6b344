"""The rows of pages as ranges: pages that are full and lie side by side are one."""

from __future__ import annotations

import cython
import numpy as np
from numpy.typing import NDArray

if not cython.compiled:
    from headrace.kernels.kinds import GivenUInts, Int, Longs, LongTable, UInt, UInts
    from headrace.store.layout import LANES, USED

_BLOCK = 1024
# Size of the first buffer of rows; a second pass fills a larger one.
_FEW = 1 << 14


def used_ranges(pages: NDArray[np.int64], words: NDArray[np.int64], page_rows: int) -> NDArray[np.int64]:
    """Returns int64[ranges, 2]: where the committed rows of these pages begin and end.

    Args:
        pages: int64[n], rising.
        words: int64[n, PAGE_WORDS], of these pages.

    >>> from headrace.store.layout import LANES, USED
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
    begins[1:] = starts[1:] != stops[: len(stops) - 1]
    ends = np.ones(len(starts), np.bool_)
    ends[: len(ends) - 1] = begins[1:]
    return np.stack([starts[begins], stops[ends]], axis=1)


def flagged_rows(steps: GivenUInts, ranges: LongTable, flag: Int) -> NDArray[np.int64]:
    """Returns the rows in these ranges whose word has `flag`, rising."""
    rows = np.empty(_FEW, np.int64)
    count = _find_flagged(steps, ranges, flag, rows)
    if count > len(rows):
        rows = np.empty(count, np.int64)
        _find_flagged(steps, ranges, flag, rows)
    return rows[:count]


def _find_flagged(steps: GivenUInts, ranges: LongTable, flag: Int, rows: Longs) -> Int:
    """Fills `rows` with the rows found, as far as it goes; returns their number."""
    count: Int = 0
    for number in range(ranges.shape[0]):
        begin: Int = ranges[number, 0]
        while begin < ranges[number, 1]:
            stop: Int = min(begin + _BLOCK, ranges[number, 1])
            # Flags are rare: most blocks have none.
            if _flags_of(steps, begin, stop) & flag:
                for row in range(begin, stop):
                    if cython.cast(Int, steps[row]) & flag:
                        if count < rows.shape[0]:
                            rows[count] = row
                        count += 1
            begin = stop
    return count


def flags_of_pages(steps: GivenUInts, words: LongTable, page_rows: Int) -> NDArray[np.uint32]:
    """Returns uint32[n]: for each of the first n pages, the flags of its committed rows; ignore the other bits.

    Args:
        steps: uint32[rows].
        words: int64[n, PAGE_WORDS], of the pages.
    """
    flags = np.empty(len(words), np.uint32)
    _take_flags(steps, words, page_rows, flags)
    return flags


def _take_flags(steps: GivenUInts, words: LongTable, page_rows: Int, flags: UInts) -> None:
    for page in range(words.shape[0]):
        begin = page * page_rows
        flags[page] = _flags_of(steps, begin, begin + words[page, USED] * words[page, LANES])


def _flags_of(steps: GivenUInts, begin: Int, stop: Int) -> UInt:
    # Two halves that do not wait for each other: a `PageRecovery` of a million rows takes 0.13 ms, not 0.16.
    half: Int = (stop - begin) // 2
    one: UInt = steps[stop - 1] if stop > begin else 0
    two: UInt = 0
    for row in range(begin, begin + half):
        one |= steps[row]
        two |= steps[half + row]
    return one | two
