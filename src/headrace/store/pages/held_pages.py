"""The pages that were in use at one instant, held until their rows are written somewhere."""

from __future__ import annotations

from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import PAGE_WORDS, REFERENCES
from headrace.store.store import Store


class HeldPages:
    """Holds pages within its `with` block; gives them back from the first on, and the rest at the end.

    While it holds pages, the same number of others may be taken beyond the capacity, so that no writer waits.

    Ctrl-C may come between any two calls. So pages are held and noted without a call in between, and pages that Ctrl-C
    kept from being given back are given back when the object is garbage.

    Args:
        store: of the pages.

    Attributes:
        numbers: int64[n], rising.
        words: int64[n, PAGE_WORDS], a copy as of that instant.
        extra_rows: rows that may be taken beyond the capacity meanwhile.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._released = 0
        self.extra_rows = 0
        self.numbers: NDArray[np.int64] = np.zeros(0, np.int64)
        self.words: NDArray[np.int64] = np.zeros((0, PAGE_WORDS), np.int64)

    def hold_all(self) -> None:
        """Holds every page that is in use now. The store's lock must be held."""
        store = self._store
        pages, self.words = store.pages_in_use()
        words, extra_rows = store.arrays.pages, len(pages) * store.arrays.page_rows
        store.note_holder(self)
        # No call from here on, after which Ctrl-C could come.
        words[pages, REFERENCES] += 1
        self.numbers = pages
        self.extra_rows = extra_rows

    def release(self, count: int) -> None:
        """Gives back the pages before number `count`."""
        store = self._store
        with store.lock:
            if count > self._released and not store.is_closed:
                pages, pins = self.numbers[self._released : count], store.pins
                # No other call in between, after which Ctrl-C could come.
                self._released = count
                pins.pin_pages(pages, -1)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.extra_rows = 0
        self.release(len(self.numbers))

    def __del__(self) -> None:
        self._store.drop(self.numbers[self._released :].tolist())
