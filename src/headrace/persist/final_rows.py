"""Final rows in pages of their own, of rows that are saved as of an earlier instant."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import LANES, USED
from headrace.store.store import Store


class SavedRows:
    """The rows that were committed when the words of their pages were copied.

    Args:
        store: of the rows.
        pages: int64[n], the pages.
        words: int64[n, PAGE_WORDS], the copy.
    """

    def __init__(self, store: Store, pages: NDArray[np.int64], words: NDArray[np.int64]) -> None:
        self._arrays = store.arrays
        # By page; 0 for a page that is not saved.
        self._rows = np.zeros(store.num_pages, np.int64)
        self._rows[pages] = words[:, USED] * words[:, LANES]

    def final_rows(self, last: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """Finds the final rows of episodes.

        Args:
            last: int64[m], the last transitions of the episodes; they are LINKED.

        Returns:
            int64[m] the final rows, and bool[m] whether they are saved: a final row may have come later.
        """
        final = self._arrays.links[last].astype(np.int64) - 1
        page, in_page = np.divmod(final, self._arrays.page_rows)
        is_saved: NDArray[np.bool_] = in_page < self._rows[np.clip(page, 0, len(self._rows) - 1)]
        return final, is_saved
