"""Rows around stored rows, found by the window function of the store."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from headrace.store.layout import BY_ROW, LANES, STEP_MASK, VERSIONED
from headrace.store.store import Store
from headrace.store.window import Window as WindowFunction
from headrace.views.located import Found, Located, Sums, places_of
from headrace.views.returns import Returns, sum_dtype
from headrace.views.sources import Source, Window


class StoredRows:
    """Rows of a store that are to be presented. The store's lock must be held.

    Args:
        store: of the rows.
        returns: by (n_step, gamma).
        rows: int64[B] or int64[B, L], -1 for padding.
        padded: whether there is padding.
    """

    def __init__(
        self,
        store: Store,
        returns: Mapping[tuple[int, float], Returns],
        rows: NDArray[np.int64],
        padded: bool,
    ) -> None:
        self._store, self._returns = store, returns
        self.rows, self.padded = rows, padded

    def kept(self, every: int) -> NDArray[np.int64]:
        """Returns rows 0, k, 2k, ... of each item; items of one row are each their own row 0."""
        if every == 1 or self.rows.ndim == 1:
            return self.rows
        return np.ascontiguousarray(self.rows[:, ::every])

    def add_up(self, sums: tuple[int, float]) -> Sums:
        """Computes the n-step transitions from the rows, given (n_step, gamma)."""
        rows = self.rows.reshape(-1)
        count = len(rows)
        totals, numbers = np.empty((2, count)), np.empty((3, count), np.int64)
        missing = self._returns[sums].add_up(rows, totals.reshape(-1), numbers[0], numbers[1:].reshape(-1))
        dtype = sum_dtype(self._store.signature.columns["reward"].dtype)
        reward, discount = totals.astype(dtype, copy=False)
        n, last, following = numbers
        return Sums(reward, discount, n, last, following, missing)

    def resolve(
        self, window: Window, offsets: NDArray[np.int64], following: NDArray[np.int64] | None
    ) -> Found:
        """Finds the rows of a window."""
        starts = self.kept(window.every).reshape(-1) if following is None else following
        shape = (len(starts), len(offsets))
        rows, known = np.empty(shape, np.int64), np.empty(shape, np.uint8)
        missing = self._store.window.resolve(
            starts, offsets, window.is_post, rows.reshape(-1), known.reshape(-1)
        )
        return Found(rows, known, missing)


def shown_rows(source: Source, located: Located, window: WindowFunction) -> NDArray[np.int64]:
    """Returns the rows that a view shows, `[B, L, ...]`, -1 for the fill; an n-step sum has an axis for its steps."""
    if source.sum_part:
        n_step, _ = sums = source.sums
        counts, rows = located.sums[sums].n, located.rows
        steps = [
            [window.follow(row, step) if step < count else -1 for step in range(n_step)]
            for row, count in zip(rows.reshape(-1).tolist(), counts.tolist(), strict=True)
        ]
        return np.array(steps, np.int64).reshape(*rows.shape, n_step)
    if source.is_last:
        return located.sums[source.sums].last.reshape(located.rows.shape)
    rows, unfit = places_of(source, located)
    return rows if unfit is None else np.where(unfit, -1, rows)


def metadata_of(store: Store, column: str, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    """Returns a column of metadata at these rows, int64[M]. The store's lock must be held."""
    numbers = np.empty(rows.shape, np.int64)
    if column == "/episode_id":
        store.window.episode_ids(rows, numbers)
    elif column == "/t":
        numbers[:] = store.arrays.steps[rows] & STEP_MASK
    else:
        page = rows // store.arrays.page_rows
        words = store.arrays.pages[page]
        row = rows - page * store.arrays.page_rows
        step = row // np.maximum(1, words[..., LANES])
        place = np.where(words[..., VERSIONED] == BY_ROW, row, step)
        numbers[:] = store.versions[page * store.arrays.page_rows + place]
    return numbers
