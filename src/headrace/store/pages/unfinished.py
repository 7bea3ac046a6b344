"""Pages whose writers have left them before they were full."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from headrace.store.layout import LANES, PREVIOUS, REFERENCES, StoreArrays


class UnfinishedPages:
    """Keeps the pages in whose rest a later block may go on. It counts no reference, so a page may be taken anew.

    The lock of the store is held throughout.

    Args:
        arrays: of the store.
    """

    def __init__(self, arrays: StoreArrays) -> None:
        self._arrays = arrays
        # By their lanes the order in which pages were left; some of these were taken since.
        self._left: defaultdict[int, dict[int, None]] = defaultdict(dict)
        self._notes: dict[int, object] = {}

    def leave(self, page: int, note: object) -> None:
        """Lets any block of as many lanes go on in the rest of a page; for the note see `are_whole`."""
        self._notes[page] = note
        left = self._left[int(self._arrays.pages[page, LANES])]
        left.pop(page, None)  # The newest one is the last.
        left[page] = None

    def set_aside(self, page: int, note: object) -> None:
        """Lets only the block that has the note go on in the rest of a page."""
        self._notes[page] = note

    def forget(self, page: int) -> None:
        """Forgets a page that is taken."""
        self._notes.pop(page, None)

    def newest(self, lanes: int) -> int:
        """Returns the page that a block of as many lanes left last, of those that something holds; -1: none."""
        left = self._left[lanes]
        while left:
            page, _ = left.popitem()
            words = self._arrays.pages[page]
            if page in self._notes and words[LANES] == lanes and words[REFERENCES] > 0:
                return page
        return -1

    def are_whole(self, pages: Sequence[int], note: object) -> bool:
        """Returns whether the pages that a block has given back are as they were then.

        Args:
            pages: in their order; the last one was left or set aside.
            note: of that moment. It is kept until another block takes that page.
        """
        words, last = self._arrays.pages, pages[-1]
        # A page that was freed is unlinked from its neighbours.
        are_linked = all(words[page, PREVIOUS] == before for before, page in pairwise(pages))
        return are_linked and self._notes.get(last) is note and words[last, REFERENCES] > 0
