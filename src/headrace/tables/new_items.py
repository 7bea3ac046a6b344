"""Items on their way into a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from headrace.errors import StoreFull
from headrace.store.pages.pinning import Pins
from headrace.tables.items.changing import unpin_items
from headrace.tables.items.layout import ONE_ROW

_NO_KEYS = np.zeros(0, np.uint64)


@dataclass(slots=True, eq=False)
class NewItems:
    """Items on their way into a table; the pages of their rows are pinned.

    Attributes:
        first_key: key of the first item; the others follow. It is above all keys that were inserted before.
        rows: int64[M], first rows of the windows.
        windows: uint32[M, 3], or uint32[1, 3] for all.
        priorities: float64[M], or float64[1] for all; empty: the largest priority when they go in.
        keys: uint64[M], in any order, for items whose keys were given out ahead, in place of `first_key`; otherwise
            empty.
        source: where the items of a client's writer are counted on disk (`persist.disk.writer_counts`); -1: nowhere.

    >>> new = NewItems(7, np.arange(3), ONE_ROW, np.ones(1))
    >>> len(new), len(new.until(1)), new.after(1).first_key
    (3, 1, 8)
    """

    first_key: int
    rows: NDArray[np.int64]
    windows: NDArray[np.uint32]
    priorities: NDArray[np.float64]
    keys: NDArray[np.uint64] = field(default_factory=lambda: _NO_KEYS)
    source: int = -1

    @classmethod
    def none(cls) -> NewItems:
        """Returns an empty batch."""
        return cls(0, np.zeros(0, np.int64), ONE_ROW, np.zeros(1))

    def __len__(self) -> int:
        return len(self.rows)

    def until(self, count: int) -> NewItems:
        """Returns the first `count` items."""
        return self._slice(0, count)

    def after(self, count: int) -> NewItems:
        """Returns the items after the first `count`."""
        return self._slice(count, len(self.rows))

    def _slice(self, start: int, stop: int) -> NewItems:
        return NewItems(
            self.first_key + start,
            self.rows[start:stop],
            self.windows[start:stop] if len(self.windows) > 1 else self.windows,
            self.priorities[start:stop] if len(self.priorities) > 1 else self.priorities,
            self.keys[start:stop],
            self.source,
        )

    def unpin(self, pins: Pins) -> None:
        """Releases the pages of items that will be in no table."""
        unpin_items(pins, self.rows, self.windows)


class ItemsLeft(StoreFull):
    """A step is stored, and there is no memory for the last items of it.

    Attributes:
        items: the items, which are in no table; their pages are still pinned.
    """

    def __init__(self, error: StoreFull, items: NewItems) -> None:
        super().__init__(str(error))
        self.__cause__ = error.__cause__
        self.items = items
