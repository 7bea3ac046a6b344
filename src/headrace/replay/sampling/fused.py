"""A fused batch: one call draws the items, finds the rows and copies small columns.

It serves items that stay when they are sampled, and views of columns at offsets of each row: the usual batch of a few
hundred transitions. It takes the lock once and copies records under it, in less time than a reading guard takes to open
and close. Wide columns are copied afterwards, without the lock. tests/replay/test_fused.py compares it with the general
path.
"""

from __future__ import annotations

from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headrace.replay.sampling.fused_fields import fused_layout
from headrace.replay.sampling.fused_kernel import PAGES_FREED, PLACE, FusedKernel
from headrace.replay.sampling.packing import BatchLayout
from headrace.replay.sampling.replay_sample import BatchMemory, ReplaySample, SampleInfo
from headrace.store.fields import Fields
from headrace.store.gather import Pool, gather
from headrace.store.store import Store
from headrace.tables.items.items import Items
from headrace.views.returns import Returns
from headrace.views.stored.fused import LAST, FusedViews

LARGEST = 1 << 18
"""Largest buffer, in bytes, that is filled under the lock: some tens of microseconds."""
# Bytes for each row that is looked up: its number, and whether it is known.
_ROW_NBYTES = 9
# The arguments of `SampleInfo`.
_NUMBERS = ("keys", "probabilities", "sizes", "priorities", "times")


def may_be_small(views: FusedViews, batch: int, length: int) -> bool:
    """Whether the buffer of `batch` items may be small. It rules out most large ones before their layout is made.

    NumPy cannot describe a buffer above 2 GiB.
    """
    shown = 1 + sum(len(window.offsets) for window in views.windows)
    return batch * length * shown * _ROW_NBYTES <= LARGEST


class FusedBatches:
    """Batches of one shape, each made by one call of a kernel.

    Args:
        store: of the steps.
        pool: of the buffers.
        views: the views to present.
        batch, length: number of items, and rows of each.
        sequences: whether there is an axis for the rows.
        wide_pool: of the arrays of wide columns.

    Attributes:
        batch, length, sequences: as above.
        is_small: whether a buffer may be filled under the lock.
    """

    def __init__(
        self,
        store: Store,
        pool: Pool,
        views: FusedViews,
        batch: int,
        length: int,
        *,
        sequences: bool,
        wide_pool: Pool,
    ) -> None:
        self.batch, self.length, self.sequences = batch, length, sequences
        self._store = store
        self._pool = pool
        self._wide_pool = wide_pool
        self._views = views
        self._layout = BatchLayout(length if sequences else None)
        layout = fused_layout(store, views, batch, length, has_axis=sequences)
        self._nbytes, self._block, self._windows = layout.block.itemsize, layout.block, layout.windows
        self.is_small = self._nbytes <= LARGEST
        if self.is_small:
            returns = Returns(store, views.n_step, views.gamma) if views.n_step else None
            self._kernel = FusedKernel(store, layout, returns)
        self._numbers = Fields(layout.block, {name: name for name in _NUMBERS})
        self._shown = Fields(
            layout.block,
            {name: f"sum:{views.sums[name]}" if name in views.sums else f"/{name}" for name in views.names},
        )
        # Of wide columns these are the numbers of their rows.
        wide: dict[str, list[str]] = {}
        for view in views.views:
            if view.is_wide:
                wide.setdefault(view.column, []).append(view.name)
        self._wide = [(store.columns[column], names) for column, names in wide.items()]

    def sample(self, items: Items) -> tuple[NDArray[np.uint8], int] | None:
        """Returns the buffer of a new batch, and the number of its unknown values.

        The lock must be held, and `is_small` be true.

        Args:
            items: of the table.

        Returns:
            None if the items have other windows; then nothing was drawn.
        """
        if self._store.has_dropped:
            self._store.reclaim()
        out = self._pool.buffer(self._nbytes)
        missing = self._kernel.sample(items, out)
        if missing == PAGES_FREED:
            self._store.reclaim()
            missing = self._kernel.sample(items, out)
        return None if missing < 0 else (out, missing)

    @property
    def ahead(self) -> int:
        """Number of unknown values after their rows, in the batch drawn last."""
        return self._kernel.ahead

    def rows(self, out: NDArray[np.uint8]) -> NDArray[np.int64]:
        """Returns the row numbers of the items, int64[B * L], from a buffer with unknown values."""
        rows: NDArray[np.int64] = np.ndarray((), self._block, out)["found"][: self.batch * self.length]
        return rows

    def present(self, out: NDArray[np.uint8], missing: int) -> ReplaySample:
        """Returns a buffer as a batch. With views of wide columns a guard must be open since before the draw."""
        data = self._shown.over(out)
        wide: list[NDArray[Any]] = []
        for column, names in self._wide:
            copies = gather(column, [data[name] for name in names], self._wide_pool)
            data.update(zip(names, copies, strict=True))
            wide += copies
        if missing:
            self._fill(np.ndarray((), self._block, out), data)
        unflatten = self._views.unflatten
        shown = data if unflatten is None else unflatten(data)
        batch = ReplaySample(shown, SampleInfo(*self._numbers.arrays(out)), None, self._layout)
        batch._memory = BatchMemory(out, self, wide)
        return batch

    def _fill(self, block: NDArray[Any], data: dict[str, NDArray[Any]]) -> None:
        found, known, rows = block["found"], block["known"], self.batch * self.length
        for view in self._views.views:
            values = data[view.name]
            shape = values.shape[: values.ndim - len(view.spec.shape)]
            if view.window == LAST:
                unfit = found[rows : 2 * rows] < 0
                values[unfit.reshape(shape)] = view.fill
            elif view.window >= 0:
                place = int(self._windows[view.window, PLACE])
                values[(known[place : place + prod(shape)] <= view.fill_threshold).reshape(shape)] = view.fill
