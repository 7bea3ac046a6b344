"""Rows of leased pages for the final rows of episodes."""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

_NO_ROWS = np.empty(0, np.int64)


class FinalRows:
    """The rows of leased pages for final rows: a writer takes them in order, and reports them in order.

    Args:
        page_rows: rows of a page.

    >>> finals = FinalRows(4)
    >>> finals.add(7), finals.add(2)
    (None, None)
    >>> finals.take(3), finals.take(2).tolist(), finals.report().tolist(), finals.free
    (slice(28, 31, None), [31, 8], [28, 29, 30, 31, 8], 3)
    """

    def __init__(self, page_rows: int) -> None:
        self._page_rows = page_rows
        # Rows are counted through all pages that are not reported to be full.
        self._pages: deque[int] = deque()
        self._taken = self._reported = 0

    def add(self, page: int) -> None:
        """Adds a leased page."""
        self._pages.append(page)

    @property
    def free(self) -> int:
        """Number of rows that can be taken."""
        return len(self._pages) * self._page_rows - self._taken

    def take(self, count: int) -> NDArray[np.int64] | slice:
        """Takes the next rows; returns them as rows of the store, an index into columns."""
        begin = self._taken
        self._taken += count
        page, row = divmod(begin, self._page_rows)
        if row + count > self._page_rows:
            return self._rows(begin)
        first = self._pages[page] * self._page_rows + row
        return slice(first, first + count)

    def report(self) -> NDArray[np.int64]:
        """Returns the rows taken since the last report, int64[m]."""
        if self._taken == self._reported:
            return _NO_ROWS  # Most reports have none.
        rows = self._rows(self._reported)
        while self._taken >= self._page_rows:
            self._pages.popleft()
            self._taken -= self._page_rows
        self._reported = self._taken
        return rows

    def _rows(self, begin: int) -> NDArray[np.int64]:
        if self._pages and self._taken <= self._page_rows:
            first = self._pages[0] * self._page_rows
            return np.arange(first + begin, first + self._taken)
        pages = np.fromiter(self._pages, np.int64)
        page, row = np.divmod(np.arange(begin, self._taken), self._page_rows)
        rows: NDArray[np.int64] = pages[page] * self._page_rows + row
        return rows
