"""A batch in one call: draw, find the rows, copy what is small.

For items that stay when they are sampled and views of columns at offsets of each row: the usual batch of a few hundred
transitions. It takes the lock once and copies records under it: that is over in less time than a guard for readers
takes to open and close. Wide columns are copied afterwards, without the lock. tests/replay/test_quick.py compares it
with the general way.
"""

from __future__ import annotations

from math import prod
from operator import itemgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.batch import SampledBatch, SampleInfo
from headrace.replay.packing import BatchLayout
from headrace.replay.quick_kernel import FOLLOWING, FOUND, KNOWN_AT, LAST_ROWS, PAGES_FREED, PLACE, sample
from headrace.replay.quick_layout import quick
from headrace.store.gather import Pool, gather
from headrace.store.records import record_layout
from headrace.store.store import Store
from headrace.views.quick import LAST, QuickViews

LARGEST = 1 << 18
"""Bytes of a stretch that is filled under the lock: some tens of microseconds."""
# Of each row that is looked for: its number, and whether it is known.
_ROW_NBYTES = 9


def may_be_small(views: QuickViews, batch: int, length: int) -> bool:
    """Whether a stretch for so many items may be small: it need not be laid out to know that most large ones are not.

    NumPy cannot describe those above 2 GiB.
    """
    shown = 1 + sum(len(window.offsets) for window in views.windows)
    return batch * length * shown * _ROW_NBYTES <= LARGEST


class QuickBatches:
    """Batches of one size of a table, each made by one call of `sample`.

    Args:
        store: of the steps.
        pool: of the stretches.
        views: what is shown.
        batch, length: items of so many rows.
        sequences: whether there is an axis for them.

    Attributes:
        batch, length, sequences: as above.
    """

    def __init__(
        self, store: Store, pool: Pool, views: QuickViews, batch: int, length: int, *, sequences: bool
    ) -> None:
        self.batch, self.length, self.sequences = batch, length, sequences
        self._views = views
        self._pool = pool
        self._quick = quick(store, views, batch, length, sequences=sequences)
        self._layout = BatchLayout(length if sequences else None)
        self._store = store
        self._how: tuple[Any, ...] = (views.gamma, record_layout(store.signature).nbytes, self._quick.numbers)
        self._names = views.names
        shown = [f"sum:{views.sums[name]}" if name in views.sums else f"/{name}" for name in views.names]
        # Of wide columns these are the numbers of their rows.
        wide: dict[str, list[str]] = {}
        for view in views.views:
            if view.is_wide:
                wide.setdefault(view.column, []).append(view.name)
        self._wide = [(store.columns[column], names) for column, names in wide.items()]
        # Many fields at once.
        self._numbers = itemgetter("keys", "probabilities", "sizes", "priorities", "times")
        self._shown = (
            itemgetter(*shown) if len(shown) > 1 else lambda block: [block[field] for field in shown]
        )

    @property
    def is_small(self) -> bool:
        """Whether such a stretch may be filled under the lock."""
        return self._quick.nbytes <= LARGEST

    def sample(
        self, table: NDArray[np.int64], numbers: tuple[int, int]
    ) -> tuple[NDArray[np.uint8], int] | None:
        """A batch's stretch of memory, and at how many places nothing is known, as `quick_kernel.sample` returns it.

        The lock must be held.

        Args:
            table: handles of the table (`table_handles`).
            numbers: the random ones (`intrinsics.next_double`).

        Returns:
            None if the items have other windows, and nothing is drawn.
        """
        if self._store.has_dropped:
            self._store.reclaim()
        out = self._pool.stretch(self._quick.nbytes)
        missing = sample(table, *numbers, *self._how, out)  # type: ignore[call-arg]
        if missing == PAGES_FREED:
            self._store.reclaim()
            missing = sample(table, *numbers, *self._how, out)  # type: ignore[call-arg]
        return None if missing < 0 else (out, missing)

    def rows(self, out: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Returns the numbers of the items' rows, int64[B * L], of a stretch."""
        begin = int(self._quick.sizes[FOUND])
        return out[begin : begin + 8 * self.batch * self.length].view(np.int64)

    def present(self, out: NDArray[np.uint8], missing: int) -> SampledBatch:
        """The stretch as a batch. With views of wide columns a guard must be open since before it was drawn."""
        block: NDArray[Any] = np.ndarray((), self._quick.block, out)
        data = dict(zip(self._names, self._shown(block), strict=True))
        for column, names in self._wide:
            copies = gather(column, [data[name] for name in names], self._pool)
            data.update(zip(names, copies, strict=True))
        if missing:
            self._fill(out, data)
        unflatten = self._views.unflatten
        shown = data if unflatten is None else unflatten(data)
        return SampledBatch(shown, SampleInfo(*self._numbers(block)), None, self._layout)

    def _fill(self, out: NDArray[np.uint8], data: dict[str, NDArray[Any]]) -> None:
        sizes = self._quick.sizes
        known = out[int(sizes[KNOWN_AT]) :]
        found = out[int(sizes[FOUND]) : int(sizes[KNOWN_AT])].view(np.int64)
        for view in self._views.views:
            values = data[view.name]
            shape = values.shape[: values.ndim - len(view.spec.shape)]
            if view.window == LAST:
                unfit = found[int(sizes[LAST_ROWS]) : int(sizes[FOLLOWING])] < 0
                values[unfit.reshape(shape)] = view.fill
            elif view.window >= 0:
                place = int(self._quick.windows[view.window, PLACE])
                values[(known[place : place + prod(shape)] <= view.covers).reshape(shape)] = view.fill
