"""Recovery of pages: their links and references are rebuilt from rows and items.

After a process was killed, and when a checkpoint is loaded, only the rows and the items are the truth. Pages may be
incomplete, partly unlinked, or held by writers that are gone. Recovery has three steps. `PageRecovery` copies the
words so that pages and links lead only to committed rows: kernels may follow the copy, however damaged the file is.
`headrace.persist.recovery` pins the rows of all items in that copy. `finish` frees the pages that nothing holds, and
writes the words back.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import (
    EMPTY,
    FINAL,
    LANES,
    LINKED,
    LINKED_ROWS,
    NEXT,
    NO_LINK,
    ORPHAN,
    PAGE_WORDS,
    PREVIOUS,
    REFERENCES,
    STARTS,
    USED,
    VERSIONED,
    StoreArrays,
)
from headrace.store.pages.pinning import Pins
from headrace.store.pages.ranges import flagged_rows, flags_of_pages, used_ranges
from headrace.store.window import Window

# A page that nothing holds. Its versions are cleared when it is taken.
EMPTY_PAGE = np.zeros(PAGE_WORDS, np.int64)
EMPTY_PAGE[[NEXT, PREVIOUS]] = -1
EMPTY_PAGE[VERSIONED] = 1


class PageRecovery:
    """Recovers the pages of a store that has no other user meanwhile.

    Args:
        arrays: of the store.
        in_use: pages that were ever taken; those after them are untouched.

    Attributes:
        arrays: the same with a copy of the pages' words, without references.
        pins: of that copy, for kernels that follow and pin rows.
        has_empty: bool[pages] as bytes: pages with an EMPTY row.
    """

    def __init__(self, arrays: StoreArrays, in_use: int) -> None:
        self._original = arrays
        words = arrays.pages[:in_use].copy()
        words[~_plausible(words, arrays.page_rows)] = EMPTY_PAGE
        words[:, [REFERENCES, LINKED_ROWS]] = 0
        self.arrays = arrays._replace(pages=words)
        self.pins = Pins(Window(self.arrays))
        self._words = words
        flags = flags_of_pages(arrays.steps, words, arrays.page_rows)
        self.has_empty: NDArray[np.uint8] = ((flags & np.uint32(EMPTY)) != 0).view(np.uint8)
        self._linked, self._finals = self._flagged_rows((flags & np.uint32(LINKED | FINAL)) != 0)
        _keep_mutual(words)
        while (astray := self._pages_that_lead_astray()).any():
            words[astray] = EMPTY_PAGE
            _keep_mutual(words)
            self._linked = self._of_held_pages(self._linked)
        self._targets = arrays.links[self._linked].astype(np.int64) - 1

    def finish(self) -> NDArray[np.bool_]:
        """Frees the pages that nothing holds, and writes the words back; returns the held pages."""
        self._count_links()
        words, original = self._words, self._original
        held: NDArray[np.bool_] = words[:, REFERENCES] > 0
        words[~held] = EMPTY_PAGE
        _keep_mutual(words)
        self._trim_starts()
        self._orphan_finals()
        original.pages[: len(words)] = words
        original.freed[-1] = 0
        return held

    def _page_of(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        return rows // self.arrays.page_rows

    def _flagged_rows(self, has_some: NDArray[np.bool_]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Returns the committed rows that are LINKED, and those that are FINAL, of the pages that have some."""
        words, steps, pages = self._words, self.arrays.steps, np.flatnonzero(has_some)
        ranges = used_ranges(pages, words[pages], self.arrays.page_rows)
        rows = flagged_rows(steps, ranges, LINKED | FINAL)
        flags = steps[rows]
        return rows[(flags & np.uint32(LINKED)) != 0], rows[(flags & np.uint32(FINAL)) != 0]

    def _of_held_pages(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        held: NDArray[np.bool_] = self._words[self._page_of(rows), LANES] > 0
        return rows[held]

    def _is_used(self, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Returns whether each row is a committed one."""
        pages = np.clip(self._page_of(rows), 0, len(self._words) - 1)
        in_page = rows - pages * self.arrays.page_rows
        used: NDArray[np.bool_] = in_page < self._words[pages, USED] * self._words[pages, LANES]
        return used & (in_page >= 0)

    def _pages_that_lead_astray(self) -> NDArray[np.bool_]:
        """Returns bool[pages]: the pages with a LINKED row whose final row does not lead back to it."""
        arrays, linked = self.arrays, self._linked
        targets = arrays.links[linked].astype(np.int64) - 1
        good = self._is_used(targets)
        safe = np.where(good, targets, 0)
        good &= (arrays.steps[safe] & np.uint32(FINAL)) != 0
        # A row has one link: one that is both would lose the one that its page gives back.
        good &= (arrays.steps[linked] & np.uint32(FINAL)) == 0
        good &= arrays.links[safe].astype(np.int64) - 1 == linked
        astray = np.zeros(len(self._words), np.bool_)
        astray[self._page_of(linked[~good])] = True
        return astray

    def _count_links(self) -> None:
        """Counts the references of held pages to the pages of their episodes' final rows."""
        words, pages, targets = self._words, self._page_of(self._linked), self._page_of(self._targets)
        counted = np.zeros(len(pages), np.bool_)
        while True:
            new = ~counted & (words[pages, REFERENCES] > 0)
            if not new.any():
                return
            np.add.at(words, (pages[new], LINKED_ROWS), 1)
            np.add.at(words, (targets[new], REFERENCES), 1)
            counted |= new

    def _trim_starts(self) -> None:
        """Removes entries of episodes in a step that was not committed."""
        words, arrays = self._words, self.arrays
        while True:
            pages = np.flatnonzero(words[:, STARTS])
            last = arrays.start_rows[pages * arrays.page_rows + words[pages, STARTS] - 1]
            beyond = pages[last >= words[pages, USED] * words[pages, LANES]]
            if not len(beyond):
                return
            words[beyond, STARTS] -= 1

    def _orphan_finals(self) -> None:
        """Marks final rows whose last transition is gone."""
        links = self._original.links
        finals = self._of_held_pages(self._finals)
        finals = finals[(links[finals] != NO_LINK) & (links[finals] != ORPHAN)]
        kept = self._words[self._page_of(self._linked), LANES] > 0
        links[finals[~np.isin(finals, self._targets[kept])]] = ORPHAN


def _plausible(words: NDArray[np.int64], page_rows: int) -> NDArray[np.bool_]:
    lanes, used, starts = words[:, LANES], words[:, USED], words[:, STARTS]
    good: NDArray[np.bool_] = (lanes >= 1) & (lanes <= page_rows)
    good &= (used >= 0) & (used <= page_rows // np.maximum(lanes, 1))
    good &= (starts >= 0) & (starts <= page_rows)
    for word in (NEXT, PREVIOUS):
        good &= (words[:, word] >= -1) & (words[:, word] < len(words))
    return good


def _keep_mutual(words: NDArray[np.int64]) -> None:
    """Cuts links to pages that do not lead back, and links that form a circle."""
    numbers = np.arange(len(words))
    for there, back in ((NEXT, PREVIOUS), (PREVIOUS, NEXT)):
        target = np.maximum(words[:, there], 0)
        mutual = (words[:, there] >= 0) & (words[target, back] == numbers)
        mutual &= (words[:, LANES] > 0) & (words[target, LANES] == words[:, LANES])
        words[~mutual, there] = -1
    following = words[:, NEXT].tolist()
    reached = np.zeros(len(words), np.bool_)
    for page in np.flatnonzero(words[:, PREVIOUS] < 0).tolist():
        while page >= 0:
            reached[page] = True
            page = following[page]
    for word in (NEXT, PREVIOUS):
        words[~reached, word] = -1
