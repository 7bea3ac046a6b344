"""Pages that are not reused, because the durable point on the disk needs their rows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

# Freed pages that wait, at least and as a share of the pages that were ever used, before they are given up together.
_FEWEST, _SHARE = 8, 16


class RetainedPages:
    """The pages of a durable point. One that is freed waits until a later point has no need of it, or is given up.

    Giving up pages costs a wait for the disk, so several pages are given up together.

    Args:
        num_pages: of the store.
        give_up: writes down, on the disk, that the point has lost these pages.
    """

    def __init__(self, num_pages: int, give_up: Callable[[Sequence[int]], None]) -> None:
        self._is_retained = np.zeros(num_pages, np.bool_)
        self._waiting: list[int] = []
        self._give_up = give_up

    def __len__(self) -> int:
        """Number of freed pages that wait."""
        return len(self._waiting)

    def retain(self, pages: NDArray[np.int64]) -> None:
        """Retains these pages in addition to those already retained."""
        self._is_retained[pages] = True

    def retain_only(self, pages: NDArray[np.int64]) -> list[int]:
        """Retains only these pages; returns the waiting pages that may be reused."""
        self._is_retained[:] = False
        self._is_retained[pages] = True
        free = [page for page in self._waiting if not self._is_retained[page]]
        self._waiting = [page for page in self._waiting if self._is_retained[page]]
        return free

    def takes(self, page: int) -> bool:
        """Returns whether this free page must wait; if so, it waits from here on."""
        waits = bool(self._is_retained[page])
        if waits:
            self._waiting.append(page)
        return waits

    def is_worth_giving_up(self, used: int) -> bool:
        """Returns whether enough pages wait to give them up, in a store that has used `used` pages."""
        return len(self._waiting) >= max(_FEWEST, used // _SHARE)

    def give_up(self) -> list[int]:
        """Gives up the waiting pages and returns them for reuse.

        Raises:
            OSError: the record could not be written; the pages keep waiting.
        """
        pages = self._waiting
        if pages:
            self._give_up(pages)
            self._waiting = []
            self._is_retained[pages] = False
        return pages
