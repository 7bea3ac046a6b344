"""Rows that are the newest of their lanes: views that look ahead have no data after them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import ENDED, FINAL, LINKED
from headrace.store.store import Store
from headrace.views.located import Located
from headrace.views.view import View

_NEXT = np.ones(1, np.int64)


class Ahead(NamedTuple):
    """Look-ahead of some views.

    Attributes:
        rows: number of rows after the row itself that they show or use; 0 for none.
        every: k, if they are presented for rows 0, k, 2k, ... of each item.
    """

    rows: int
    every: int

    @classmethod
    def of(cls, views: Iterable[View]) -> Ahead:
        """Returns the largest look-ahead of the views, and the smallest k of the views that look ahead."""
        looking = [(view.furthest, view.every) for view in views if view.furthest > 0]
        return cls(max((rows for rows, _ in looking), default=0), min((k for _, k in looking), default=1))


def knows_too_little(located: Located) -> bool:
    """Whether a value is missing where views look ahead, also at the end of an episode or in padding."""
    for sums in located.sums.values():
        if sums.missing:
            return True
    return any(found.missing and max(window.offsets) > 0 for window, found in located.found.items())


def count_newest(store: Store, rows: NDArray[np.int64]) -> int:
    """Counts the rows whose episodes continue but whose next row is not stored. The store's lock must be held.

    Args:
        store: of the rows.
        rows: int64[M], -1 for padding.
    """
    rows = rows[rows >= 0]
    is_open = (store.arrays.steps[rows] & np.uint32(FINAL | ENDED | LINKED)) == 0
    spec = store.signature.columns.get("terminated")
    if spec is not None and spec.shape == ():
        # Nothing comes after it, whether or not the writer has ended the episode already.
        is_open &= store.columns["terminated"][rows] == 0
    rows = rows[is_open]
    found, known = np.empty(len(rows), np.int64), np.empty(len(rows), np.uint8)
    return store.window.resolve(rows, _NEXT, False, found, known)
